import type { Outcome } from "@baton/kit";

/** Changes to the top-level members of a client's body; all else stays byte for byte. */
export interface LegEdit {
  readonly remove: readonly string[];
  /** Members to add, values as JSON text. */
  readonly append: readonly { readonly key: string; readonly json: string }[];
}

/** What is known of a prefill answer besides the handle itself. */
export interface AnswerFacts {
  /** The engine's count of prompt tokens; null when the answer has no usage. */
  readonly promptTokens: number | null;
  /** The prefill worker's engine block; null when not known. */
  readonly blockSizeTokens: number | null;
}

/** What the broker needs to know of a handle. The handle's bytes pass through unread and unchanged. */
export interface HandleFacts {
  /** The engine's own id of it, unique within the engine's life. */
  readonly handleId: string;
}

/** All that Baton knows of one P/D transfer protocol, as data and pure functions. */
export interface Connector {
  readonly name: string;
  /** One line for operators. */
  readonly description: string;
  /** `none`: nothing is transferred, one engine does both. */
  readonly legOrder: "prefill-then-decode" | "none";
  /** How long the prefill engine keeps the blocks for a pull, from its answer. */
  readonly handleLeaseMs: number;
  /** Member of the prefill answer that is the handle, and of the decode body that takes it. */
  readonly handleMember: string;
  prefillLeg(route: "chat" | "completions"): LegEdit;
  /** Edit that puts the handle into the client's body for the decode leg. */
  decodeLeg(handleJson: string): LegEdit;
  /** Edit for a decode leg whose only purpose is that the prefill engine frees its blocks. */
  abandonLeg(route: "chat" | "completions", handleJson: string): LegEdit;
  /** Guards that keep a decode engine alive and its answers right. The error says which row failed. */
  checkAnswer(handle: unknown, facts: AnswerFacts): Outcome<HandleFacts, string>;
}

import type { HashList } from "@baton/kit";
import { finishMix, mixWords } from "./mix.ts";

/** What keeps equal tokens apart from the first block on. */
export interface HashNamespace {
  readonly model: string;
  readonly loraName: string | null;
  readonly cacheSalt: string | null;
}

/** Parent of block 0 in this namespace: one hash. Absent and empty salt differ. */
export function namespaceRoot(namespace: HashNamespace): HashList {
  return hashText(JSON.stringify([namespace.model, namespace.loraName, namespace.cacheSalt]));
}

/** Hash of a text over its UTF-16 code units. */
export function hashText(text: string): HashList {
  const words = new Uint32Array(text.length);
  for (let at = 0; at < text.length; at++) words[at] = text.charCodeAt(at);
  const state = new Uint32Array(4);
  mixWords(state, words, 0, words.length);
  finishMix(state, words.length * 4);
  return state.slice(0, 2);
}

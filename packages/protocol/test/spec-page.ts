import { fleet, place } from "@baton/protocol";
import type { Example } from "./spec-examples.ts";

/** A row of a field table. `kinds` is empty for fields that every kind has. */
export interface Row {
  readonly path: string;
  readonly kinds: readonly string[];
  /** Anchor of the shared part that the field is. */
  readonly part: string | null;
}

/** Heading, in lower case, → text below it, up to the next heading. */
export function sectionsOf(page: string): Map<string, string> {
  const sections = new Map<string, string>();
  for (const text of page.split(/^#+ /m).slice(1)) {
    const end = text.indexOf("\n");
    sections.set(text.slice(0, end).toLowerCase(), text.slice(end));
  }
  return sections;
}

export function fieldRows(section: string): Row[] {
  const table = section.split("\n\n").find((each) => /^\s*\| field /.test(each));
  if (table === undefined) return [];
  const [head, , ...rows] = table.trim().split("\n").map(cells);
  const hasKinds = head!.includes("kinds");
  return rows.map((row) => ({
    path: row[0]!.replaceAll("`", ""),
    kinds: hasKinds ? [...row[1]!.matchAll(/`([^`]+)`/g)].map((match) => match[1]!) : [],
    part: /\]\(#([a-z-]+)\)/.exec(row[hasKinds ? 2 : 1]!)?.[1] ?? null,
  }));
}

function cells(line: string): string[] {
  return line
    .split("|")
    .slice(1, -1)
    .map((each) => each.trim());
}

/** Every path of a message body: `stage`, `stage.kind`, `workers[]`, `workers[].url`. */
export function pathsOf(value: unknown, path = ""): string[] {
  if (Array.isArray(value)) {
    return [`${path}[]`, ...value.flatMap((item) => pathsOf(item, `${path}[]`).slice(1))];
  }
  const own = path === "" ? [] : [path];
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return own;
  const inner = Object.entries(value).flatMap(([key, each]) =>
    pathsOf(each, path === "" ? key : `${path}.${key}`),
  );
  return [...own, ...inner];
}

/** The two blocks that show an example: its value as JSON, bytes as hex, and what is on the wire. */
export function exampleBlocks(example: Example): { readonly json: string; readonly hex: string } {
  const members = Object.entries(example.value as object).map(
    ([key, value]) => `  ${JSON.stringify(key)}: ${JSON.stringify(value, hexOfBytes)}`,
  );
  const hex = Buffer.from(example.payload).toString("hex");
  return { json: `{\n${members.join(",\n")}\n}`, hex: hex.match(/.{1,96}/g)!.join("\n") };
}

function hexOfBytes(_key: string, value: unknown): unknown {
  return value instanceof Uint8Array ? { hex: Buffer.from(value).toString("hex") } : value;
}

export function blockOf(page: string, info: string): string | undefined {
  return page.split(`\n\`\`\`${info}\n`)[1]?.split("\n```")[0];
}

const hashesPerSetMax = 65_536;

/** Bytes of a `place` for a prompt of this length, with ids as long as the services make them. */
export function placeBytes(tokens: number, blockSizes: readonly number[]): number {
  const hashSets = blockSizes.map((blockSizeTokens) => ({
    blockSizeTokens,
    hashes: new Uint8Array(8 * Math.min(hashesPerSetMax, Math.floor(tokens / blockSizeTokens))),
  }));
  return place.encode({
    requestId: "7f0c7b6e-3b0e-4b7e-9d0e-2f4f6f1c8a11",
    attempt: 1,
    frontend: { frontendId: "f".repeat(40), incarnation: "281474976710655" },
    promptTokens: tokens,
    promptBytes: tokens * 4,
    hashSets,
    maxOutputTokens: 512,
    deadlineMs: 1_800_000,
    excluded: [],
  }).length;
}

/** What one more worker adds to a `fleet`. */
export function fleetWorkerBytes(): number {
  const bytes = (count: number) =>
    fleet.encode({
      model: "m",
      pool: "prefill",
      schedulerId: "s",
      isLeaving: false,
      indexBlockSizes: [16],
      maxModelLenTokens: null,
      workers: Array.from({ length: count }, () => ({
        workerId: "prefill-000",
        url: "http://prefill-000.svc.test:8000",
        incarnation: "1796079004.505.1",
        state: "up" as const,
        reason: "answers",
      })),
    }).length;
  return (bytes(1_100) - bytes(1_000)) / 100;
}

import { invariant } from "@baton/kit";
import { type MetricsText, textOfBlocks } from "./metrics.ts";

/**
 * One scrape for several services of one process: each metric once, with the series of all parts.
 * Throws when two parts mean different things by one name, or could write the same series.
 */
export function joinMetrics(
  parts: readonly Pick<MetricsText, "blocks" | "definitions" | "defaultLabels">[],
): { text(): Promise<string> } {
  checkParts(parts);
  return {
    async text() {
      const joined = new Map<string, string>();
      for (const part of parts) {
        for (const [name, block] of await part.blocks()) {
          const before = joined.get(name);
          joined.set(name, before === undefined ? block : before + seriesLines(block));
        }
      }
      return textOfBlocks(joined.values());
    },
  };
}

/** A block begins with its HELP and its TYPE line; help texts hold no line breaks. */
function seriesLines(block: string): string {
  return block
    .split("\n")
    .slice(2)
    .map((line) => `\n${line}`)
    .join("");
}

function checkParts(parts: readonly Pick<MetricsText, "definitions" | "defaultLabels">[]): void {
  const meanings = new Map<string, string>();
  const owners = new Set<string>();
  for (const { definitions, defaultLabels } of parts) {
    for (const [name, definition] of Object.entries(definitions)) {
      const meaning = JSON.stringify(definition);
      const known = meanings.get(name) ?? meaning;
      invariant(known === meaning, `metric ${name} is defined in two ways`);
      meanings.set(name, meaning);
      const owner = JSON.stringify([name, Object.entries(defaultLabels).sort()]);
      invariant(!owners.has(owner), `metric ${name} comes twice with the same default labels`);
      owners.add(owner);
    }
  }
}

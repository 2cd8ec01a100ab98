import type { ErrorSource, errorCatalogue } from "@baton/domain";

type ErrorEntry = (typeof errorCatalogue)[keyof typeof errorCatalogue];

const sources: readonly (readonly [ErrorSource, string])[] = [
  ["client", "The request is at fault"],
  ["engine", "An engine is at fault"],
  ["bus", "The bus is at fault"],
  ["self", "Baton itself answers so"],
];

/** Markdown for docs/errors.md: one table per source, in the order of the catalogue. */
export function renderErrorsDoc(catalogue: Readonly<Record<string, ErrorEntry>>): string {
  const parts = sources.map(([source, title]) => {
    const entries = Object.entries(catalogue).filter(([, entry]) => entry.source === source);
    const rows = entries.map(([code, { status, retryable, meaning, nextStep }]) => [
      `\`${code}\``,
      status === null ? "—" : String(status),
      retryable ? "yes" : "no",
      escapeBars(meaning),
      escapeBars(nextStep),
    ]);
    const head = ["Code", "HTTP", "Retry may help", "Meaning", "What to do"];
    const lines = [head, head.map(() => "---"), ...rows].map(
      (cells) => `| ${cells.join(" | ")} |\n`,
    );
    return `## ${title} (\`${source}\`)\n\n${lines.join("")}`;
  });
  return parts.join("\n");
}

function escapeBars(text: string): string {
  return text.replaceAll("|", "\\|");
}

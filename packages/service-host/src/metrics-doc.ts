import type { MetricDefinition } from "@baton/ports";
import { markdownTable } from "./markdown-table.ts";

/** Markdown for docs/metrics.md: one table by name, so that the same metrics give the same text. */
export function renderMetricsDoc(
  name: string,
  definitions: Readonly<Record<string, MetricDefinition>>,
): string {
  const names = Object.keys(definitions).sort();
  const rows = names.map((metric) => {
    const definition = definitions[metric]!;
    return [`\`${metric}\``, definition.kind, labelText(definition), helpText(definition)];
  });
  return `## ${name}\n\n${markdownTable(["Metric", "Kind", "Labels", "Meaning"], rows)}`;
}

function labelText({ labels }: MetricDefinition): string {
  return labels.map((label) => `\`${label}\``).join(", ");
}

function helpText(definition: MetricDefinition): string {
  if (definition.kind !== "histogram") return definition.help;
  return `${definition.help} Buckets: ${definition.buckets.join(", ")}.`;
}

import { invariant } from "@baton/kit";
import type { MetricDefinition } from "@baton/ports";

/**
 * Units that a gauge's or a histogram's name may end in. Base units only: no milliseconds and no
 * megabytes. `_info` is a gauge that is always 1 and tells by its labels.
 */
export const metricUnits = [
  "seconds",
  "bytes",
  "tokens",
  "blocks",
  "ratio",
  "requests",
  "workers",
  "streams",
  "handles",
  "leases",
  "frontends",
  "transfers",
  "bytes_per_second",
  "tokens_per_second",
  "requests_per_second",
  "info",
  "state",
] as const;

const nameForm = /^baton_[a-z][a-z0-9]*(_[a-z0-9]+)*$/;
const labelForm = /^[a-z][a-z0-9_]*$/;
const bucketsMax = 40;

/** Throws on a definition that STYLE.md or Prometheus does not allow; at creation, never later. */
export function checkMetric(
  name: string,
  definition: MetricDefinition,
  labelsTaken: readonly string[],
): void {
  invariant(nameForm.test(name), `metric ${name}: names are baton_, then words in lower case`);
  invariant(definition.help.trim() !== "", `metric ${name} has no help`);
  checkUnit(name, definition.kind);
  const { labels } = definition;
  invariant(new Set(labels).size === labels.length, `metric ${name} has a label twice`);
  for (const label of labels) {
    invariant(labelForm.test(label) && label !== "le", `metric ${name}: bad label ${label}`);
    invariant(!labelsTaken.includes(label), `metric ${name}: ${label} is a default label`);
  }
  if (definition.kind !== "histogram") return;
  const { buckets } = definition;
  const count = `metric ${name} has ${buckets.length} buckets, 1 to ${bucketsMax} are allowed`;
  invariant(buckets.length > 0 && buckets.length <= bucketsMax, count);
  for (const [index, bound] of buckets.entries()) {
    const isAscending = index === 0 || bound > buckets[index - 1]!;
    invariant(Number.isFinite(bound) && isAscending, `metric ${name}: buckets must ascend`);
  }
}

function checkUnit(name: string, kind: MetricDefinition["kind"]): void {
  if (kind === "counter") {
    invariant(name.endsWith("_total"), `counter ${name} must end in _total`);
    return;
  }
  const isUnit = metricUnits.some((unit) => name.endsWith(`_${unit}`));
  invariant(isUnit, `${kind} ${name} must end in its unit: ${metricUnits.join(", ")}`);
}

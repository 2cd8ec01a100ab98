export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const linePattern = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?\s*$/;
const labelPattern = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

/**
 * Samples of the `wanted` series in a Prometheus text exposition. Comments and other series are
 * stepped over; a line that cannot be read is skipped, since engines add what we do not know.
 */
export function parsePrometheus(text: string, wanted: ReadonlySet<string>): Map<string, Sample[]> {
  const found = new Map<string, Sample[]>();
  for (const line of text.split("\n")) {
    const nameEnd = line.search(/[{\s]/);
    if (nameEnd <= 0 || !wanted.has(line.slice(0, nameEnd))) continue;
    const match = linePattern.exec(line);
    if (match === null) continue;
    const [, name, labelText, valueText] = match;
    const value = readValue(valueText!);
    if (value === null) continue;
    const labels: Record<string, string> = {};
    for (const [, key, raw] of (labelText ?? "").matchAll(labelPattern)) {
      labels[key!] = raw!.replace(/\\(["\\n])/g, (_, char: string) => (char === "n" ? "\n" : char));
    }
    const samples = found.get(name!) ?? [];
    samples.push({ labels, value });
    found.set(name!, samples);
  }
  return found;
}

function readValue(text: string): number | null {
  if (text === "+Inf") return Number.POSITIVE_INFINITY;
  if (text === "-Inf") return Number.NEGATIVE_INFINITY;
  const value = Number(text);
  return Number.isNaN(value) ? null : value;
}

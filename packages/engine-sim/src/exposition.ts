/** Numbers as Python's Prometheus client prints them. */
export function pythonNumber(value: number): string {
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : value < 0 ? "-Inf" : "NaN";
  if (Math.abs(value) < 1e6) return Number.isInteger(value) ? `${value}.0` : String(value);
  const [mantissa, exponent] = value.toExponential().split("e+") as [string, string];
  return `${mantissa}e+${exponent.padStart(2, "0")}`;
}

export class Histogram {
  readonly bounds: readonly number[];
  readonly counts: number[];
  sum = 0;
  count = 0;

  /** Upper bounds, rising, without infinity. */
  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = bounds.map(() => 0);
  }

  observe(value: number): void {
    this.sum += value;
    this.count++;
    const bucket = this.bounds.findIndex((bound) => value <= bound);
    if (bucket >= 0) this.counts[bucket]!++;
  }
}

type LabelValues = Readonly<Record<string, string>>;

/** Prometheus text, built series by series; label names come out in alphabetical order. */
export class Exposition {
  readonly #common: LabelValues;
  #text = "";

  /** `common`: labels of every series of this engine. */
  constructor(common: LabelValues) {
    this.#common = common;
  }

  get text(): string {
    return this.#text;
  }

  head(name: string, kind: "counter" | "gauge" | "histogram", help: string): void {
    this.#text += `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n`;
  }

  series(name: string, value: number, labels: LabelValues = {}): void {
    this.raw(name, value, { ...this.#common, ...labels });
  }

  /** Without the common labels. */
  raw(name: string, value: number, labels: LabelValues): void {
    const names = Object.keys(labels).sort();
    const list = names.map((label) => `${label}="${labels[label]}"`).join(",");
    this.#text += `${name}${list === "" ? "" : `{${list}}`} ${pythonNumber(value)}\n`;
  }

  histogram(name: string, help: string, histogram: Histogram): void {
    this.head(name, "histogram", help);
    let below = 0;
    histogram.bounds.forEach((bound, index) => {
      below += histogram.counts[index]!;
      this.series(`${name}_bucket`, below, { le: pythonNumber(bound) });
    });
    this.series(`${name}_bucket`, histogram.count, { le: "+Inf" });
    this.series(`${name}_count`, histogram.count);
    this.series(`${name}_sum`, histogram.sum);
  }
}

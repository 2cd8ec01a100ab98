/** One series of a page in Prometheus' text format. */
export interface Series {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export async function readMetrics(url: string): Promise<Series[]> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return text.split("\n").flatMap((line) => {
    const match = /^([a-z_:]\w*)(?:\{(.*)\})? (\S+)$/i.exec(line);
    if (match === null) return [];
    const labels = [...(match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
    return [
      {
        name: match[1]!,
        labels: Object.fromEntries(labels.map(([, name, value]) => [name!, value!])),
        value: Number(match[3]),
      },
    ];
  });
}

/** Sum of the series of this name that have these labels; 0 when there is none. */
export function sumOf(
  page: readonly Series[],
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  return page
    .filter((each) => each.name === name)
    .filter((each) => Object.entries(labels).every(([key, value]) => each.labels[key] === value))
    .reduce((sum, each) => sum + each.value, 0);
}

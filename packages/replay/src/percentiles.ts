export interface Percentiles {
  readonly p50: number | null;
  readonly p90: number | null;
  readonly p99: number | null;
}

/**
 * Exact, by the nearest-rank rule: the smallest sample that at least `percent` of all samples do not
 * exceed. Null without samples. `sorted` is ascending.
 */
export function percentile(sorted: ArrayLike<number>, percent: number): number | null {
  if (sorted.length === 0) return null;
  const rank = Math.max(1, Math.ceil((percent / 100) * sorted.length));
  return sorted[rank - 1]!;
}

/** Sorts a copy; O(n log n). */
export function percentilesOf(samples: ArrayLike<number>): Percentiles {
  const sorted = Float64Array.from(samples).sort();
  return {
    p50: percentile(sorted, 50),
    p90: percentile(sorted, 90),
    p99: percentile(sorted, 99),
  };
}

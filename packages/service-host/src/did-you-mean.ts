/** Longer names are no slips of the pen; the distance costs the product of the lengths. */
const nameLengthMax = 100;

/**
 * The known name nearest to `name`, or null when none is near: equal but for case and separators
 * (`max_payload` for `maxPayload`), else at most one slip per three letters. Ties go to the first.
 */
export function didYouMean(name: string, known: Iterable<string>): string | null {
  if (name.length > nameLengthMax) return null;
  let best: string | null = null;
  let bestSlips = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    if (plain(candidate) === plain(name)) return candidate;
    const slips = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (slips < bestSlips) {
      best = candidate;
      bestSlips = slips;
    }
  }
  return best;
}

function plain(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9]/g, "");
}

/** Insertions, deletions, changes and swaps of neighbours (optimal string alignment). */
function editDistance(left: string, right: string): number {
  let before: number[] = [];
  let last = Array.from({ length: right.length + 1 }, (_, column) => column);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const same = left[row - 1] === right[column - 1];
      let slips = Math.min(
        last[column]! + 1,
        current[column - 1]! + 1,
        last[column - 1]! + (same ? 0 : 1),
      );
      const isSwap = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      if (row > 1 && column > 1 && isSwap) slips = Math.min(slips, before[column - 2]! + 1);
      current.push(slips);
    }
    before = last;
    last = current;
  }
  return last[right.length]!;
}

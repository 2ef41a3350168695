/** The candidate that is closest to the word, if one is close enough to be what was meant. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const plain = word.toLowerCase().replaceAll("_", "-");
  let best: string | undefined;
  let distanceToBest = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    // The lengths alone differ too much. So the time for a word of megabytes, which a caller may send, stays short.
    if (Math.abs(plain.length - candidate.length) >= distanceToBest) continue;
    const distance = editDistance(plain, candidate);
    if (distance < distanceToBest) [best, distanceToBest] = [candidate, distance];
  }
  return best;
}

/** The number of characters to add, remove or replace to turn one word into the other (Levenshtein). */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

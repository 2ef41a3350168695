/** Sandboxes that end at the same moment are removed this many at a time. */
const AT_ONCE = 16;

/** Acts on all items, a bounded number at a time. */
export async function inBatches<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const worker = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await act(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

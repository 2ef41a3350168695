/** Yields the items of a source, and stops as soon as `over` settles, even while waiting for the next item. */
export function until<T>(
  source: AsyncIterable<T> | Iterable<T>,
  over: Promise<unknown>,
): AsyncIterableIterator<T, undefined> {
  const iterator =
    Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
  // Use one callback for all items: a race per item would leave a callback on `over` for each.
  let isOver = false;
  let leave = (): void => {};
  const onOver = (): void => {
    isOver = true;
    leave();
  };
  over.then(onOver, onOver);
  const end = (): IteratorReturnResult<undefined> => {
    isOver = true;
    // Do not await this: a stuck source must not block the caller.
    Promise.resolve(iterator.return?.()).catch(() => {});
    return { done: true, value: undefined };
  };
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      if (isOver) return end();
      try {
        const result = await new Promise<IteratorResult<T> | undefined>((resolve, reject) => {
          leave = () => resolve(undefined);
          Promise.resolve(iterator.next()).then(resolve, reject);
        });
        return result === undefined || result.done ? end() : result;
      } catch (error) {
        end();
        throw error;
      }
    },
    return: async () => end(),
  };
}

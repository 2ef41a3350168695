/** The items of a source, which is left as soon as `over` settles, even while its next item is awaited. */
export function until<T>(
  source: AsyncIterable<T> | Iterable<T>,
  over: Promise<unknown>,
): AsyncIterableIterator<T, undefined> {
  const iterator =
    Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
  // One callback for all items: a race for each would leave a trace of each at `over`.
  let isOver = false;
  let leave = (): void => {};
  const onOver = (): void => {
    isOver = true;
    leave();
  };
  over.then(onOver, onOver);
  const end = (): IteratorReturnResult<undefined> => {
    isOver = true;
    // Not awaited: a source that is stuck holds nobody up.
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

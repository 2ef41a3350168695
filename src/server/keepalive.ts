/**
 * Passes on a stream's items, and `undefined` whenever nothing came for
 * `intervalMs`. Whoever stops reading does not wait for the stream, which may
 * take its time to end.
 */
export async function* withKeepalive<T>(
  items: AsyncGenerator<T>,
  intervalMs: number,
): AsyncGenerator<T | undefined> {
  let next = items.next();
  try {
    while (true) {
      let timer: NodeJS.Timeout | undefined;
      const silence = new Promise<"silence">((resolve) => {
        timer = setTimeout(resolve, intervalMs, "silence");
      });
      const first = await Promise.race([next, silence]).finally(() => clearTimeout(timer));
      if (first === "silence") yield undefined;
      else if (first.done) return;
      else {
        yield first.value;
        next = items.next();
      }
    }
  } finally {
    next.catch(() => {});
    items.return(undefined).catch(() => {});
  }
}

/** Only against hangs, in seconds. */
const MOST = 60;

/**
 * Runs something with a timeout, in seconds, and repeats it with twice the time until it got as far as it should before
 * its timeout: a busy machine may need any time for that. Returns its last result.
 */
export async function withTimeEnough<T>(
  first: number,
  run: (timeout: number) => Promise<T>,
  gotThere: (result: T) => boolean,
): Promise<T> {
  for (let timeout = first; ; timeout *= 2) {
    const result = await run(timeout);
    if (gotThere(result) || timeout > MOST) return result;
  }
}

/**
 * Makes a function that does `work` now, or, where it is being done, once more
 * after that: however often it was asked for meanwhile, one time serves all.
 */
export function oneAtATime(work: () => Promise<void>, onFailure: (error: unknown) => void): () => void {
  let busy = false;
  let wanted = false;
  const run = async () => {
    busy = true;
    try {
      while (wanted) {
        wanted = false;
        await work();
      }
    } catch (error) {
      onFailure(error);
    } finally {
      busy = false;
    }
  };
  return () => {
    wanted = true;
    if (!busy) void run();
  };
}

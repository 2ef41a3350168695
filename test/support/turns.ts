/** How often the turns of the event loop are sampled. */
const TICK_MS = 10;

/**
 * Follows the turns of this thread's event loop. The returned function stops that and returns the CPU time of each
 * turn, in milliseconds, including the current one. CPU time, because on a busy machine the thread may lose its CPU for
 * longer.
 */
export function followTurns(): () => readonly number[] {
  const turns: number[] = [];
  let last = process.threadCpuUsage();
  const endTurn = (): void => {
    const { user, system } = process.threadCpuUsage(last);
    turns.push((user + system) / 1000);
    last = process.threadCpuUsage();
  };
  const timer = setInterval(endTurn, TICK_MS);
  return () => {
    clearInterval(timer);
    endTurn();
    return turns;
  };
}

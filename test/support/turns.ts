/** How often a turn of the event loop is looked for. */
const TICK_MS = 10;

/**
 * Follows the turns of this thread's event loop. The returned function ends
 * that and returns what each took of the thread's own time, in milliseconds,
 * the one that has not ended among them: a busy machine may keep the thread
 * from a processor for longer.
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

/** The processor time that `act` takes on this thread, in milliseconds. Unlike time, it does not depend on the load. */
export function processorMs(act: () => void): number {
  const before = process.threadCpuUsage();
  act();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

/** The signals that programs handle, with their numbers on Linux. */
const SIGNALS = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGUSR2: 12,
  SIGTERM: 15,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGWINCH: 28,
} as const;

/** The name of a signal that programs handle. */
export type SignalName = keyof typeof SIGNALS;

/** @throws TypeError for a name that is none of the known ones */
export function signalNumber(given: number | SignalName): number {
  const number = typeof given === "number" ? given : SIGNALS[given];
  if (Number.isInteger(number)) return number;
  throw new TypeError(`"${given}" is not a signal: give its number, or ${Object.keys(SIGNALS).join(", ")}.`);
}

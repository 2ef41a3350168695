/** The signals that have names, with their numbers on Linux. */
const SIGNALS = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGSTKFLT: 16,
  SIGCHLD: 17,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGTTIN: 21,
  SIGTTOU: 22,
  SIGURG: 23,
  SIGXCPU: 24,
  SIGXFSZ: 25,
  SIGVTALRM: 26,
  SIGPROF: 27,
  SIGWINCH: 28,
  SIGIO: 29,
  SIGPWR: 30,
  SIGSYS: 31,
} as const;

/** The name of a signal. */
export type SignalName = keyof typeof SIGNALS;

/** @throws TypeError for a name that is none of the known ones */
export function signalNumber(given: number | SignalName): number {
  const number = typeof given === "number" ? given : SIGNALS[given];
  if (Number.isInteger(number)) return number;
  throw new TypeError(`"${given}" is not a signal: give its number, or a name such as SIGTERM.`);
}

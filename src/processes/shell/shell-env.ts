const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Names that dash, bash or busybox ash set, change, refuse or drop on their own
 * way from their environment to a command's.
 */
const SHELLS_OWN =
  /^(_|OPTIND|OPTERR|PPID|E?UID|GROUPS|LINENO|RANDOM|SECONDS|EPOCH.*|SRANDOM|SHELLOPTS|BASH.*|LC_.*|LANG|IFS|PS4|ENV|DIRSTACK|FUNCNAME|FUNCNEST|HIST.*|COMP_.*|POSIXLY_CORRECT|PWD|OLDPWD|SHLVL|TIMEFORMAT|TMOUT)$/;

/** An environment, divided by who can carry it through a shell. */
export interface DividedEnv {
  /** Entries every shell passes on unchanged. */
  readonly plain: Readonly<Record<string, string>>;
  /** Entries, as `NAME=value`, that only `env` sets exactly. */
  readonly special: readonly string[];
}

/** Divides an environment into what a shell passes on unchanged and what needs `env`. */
export function divideEnv(env: Readonly<Record<string, string>>): DividedEnv {
  const plain: Record<string, string> = {};
  const special: string[] = [];
  for (const [name, value] of Object.entries(env)) {
    if (IDENTIFIER.test(name) && !SHELLS_OWN.test(name)) plain[name] = value;
    else special.push(`${name}=${value}`);
  }
  return { plain, special };
}

/**
 * The arguments that make a shell's `exec` run `argv` with the special entries
 * set. A program whose name begins with `-` goes through `env` too: bash and
 * busybox would read it as an option of `exec`.
 */
export function execArguments(argv: readonly string[], special: readonly string[]): string[] {
  const throughEnv = special.length > 0 || argv[0]?.startsWith("-") === true;
  return throughEnv ? ["env", "--", ...special, ...argv] : [...argv];
}

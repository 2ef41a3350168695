import { invalidArgument } from "../../base/errors.ts";
import type { JobRequest, Leader, LeaderId } from "./job.ts";

/*
 * The scripts that Berth runs in shells in sandboxes, and the parsing of their answers. They work in the `sh` of dash,
 * bash and busybox. README.md describes the protocol.
 */

/** Text for a shell: any bytes but NUL, encoded as latin1. */
export type ShellText = string;

/** Quotes any string so that a shell takes it as one word. */
function quote(text: string): ShellText {
  return `'${Buffer.from(text).toString("latin1").replaceAll("'", "'\\''")}'`;
}

/** Parses a shell's report of its own id: `<pid>:<start time>`, or just the pid. */
export function parseLeader(text: string): LeaderId {
  const [pid, startTime = ""] = text.split(":");
  return { pid: Number(pid), startTime };
}

// Parts common to all kinds of shells.
//
// A shell ends with the exit code of its last job: if output holds up the markers, the engine may report the shell's end
// before they arrive.

/**
 * The signals that end a process which does not handle them, by number, because shells name them differently. Without
 * SIGILL, SIGBUS, SIGFPE and SIGSEGV: a shell that survived its own fault would repeat it for ever.
 */
const ENDING_SIGNALS = [
  ...[1, 2, 3, 5, 6, 10, 12, 13, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31],
  // The real-time signals.
  ...Array.from({ length: 31 }, (_, index) => 34 + index),
];

/** Lets a shell survive a signal to its process group, which its job may handle. */
const SURVIVE_SIGNALS = `trap : ${ENDING_SIGNALS.join(" ")}`;

/**
 * A lane's shell keeps the engine's pipes as descriptors 3 and 4, and /dev/null as 5. Its stdout stays as it is,
 * because it writes only markers there, and a redirection for each would take six system calls. Its error messages are
 * dropped.
 */
export const PLAIN_START = "exec 3>&1 4>&2 2>/dev/null 5</dev/null\n";

/**
 * The redirections of a job. Its pipes are reopened through /proc: otherwise a job that sets O_NONBLOCK on them would
 * truncate the marker that follows. They are also opened for reading, so that a writer without a reader blocks instead
 * of getting SIGPIPE.
 */
const JOB_PIPES = "1<>/proc/self/fd/3 2<>/proc/self/fd/4 3>&- 4>&- 5<&-";

/**
 * Runs after a job's shell has reported how the job ended: waits until a service runs, by reopening stdin. The report
 * stays in the shell's pipes only while the shell holds them open. Without a service, no process has the named pipe
 * open for writing, so opening it blocks. Opening other pipes never blocks. Without `command`, a shell that cannot open it
 * would end with a code of its own.
 */
const AWAIT_READER = "command : </proc/self/fd/0";

/** Shell builtins, which `exec` does not run. */
const BUILTINS =
  "alias|bg|break|cd|command|continue|eval|exec|exit|export|fg|getopts|hash|jobs|local|read|readonly|return|set|shift|source|times|trap|type|ulimit|umask|unalias|unset|wait";

/**
 * `F program "$PATH:"` ends the shell if the program does not exist, like `exec` would, but with an error message that
 * does not contain a line number of this text. It uses no variables, because the program may need any name. A program
 * that is in no directory may be part of the shell, as with busybox.
 */
const FIND_PROGRAM = `F() { while [ "$2" ]; do
    case $1 in */*) set -- "$1" "" "$1" "$4";; *) set -- "$1" "\${2#*:}" "\${2%%:*}" "$4"; set -- "$1" "$2" "\${3:-.}/$1" "$4"; esac
    [ -e "$3" ] || continue
    [ ! -x "$3" ] || [ -d "$3" ] || return 0
    set -- "$1" "$2" "$3" "$3"
  done
  if [ -d "$4" ]; then set -- "$1: is a directory" 126
  elif [ "$4" ]; then set -- "$1: is not executable" 126
  else case $1 in */*|${BUILTINS}) ;; *) ! command -v "$1" >/dev/null 2>&1 || return 0; esac
    set -- "$1: not found in the sandbox" 127
  fi
  printf 'berth: %s\\n' "$1" >&2
  exit $2; }`;

/**
 * `X -- NAME=VALUE... program argument...` sets variables that this shell would change on the way, and becomes the
 * program. The program's PATH need not contain `env`.
 */
const EXEC_THROUGH_ENV =
  'X() { if [ -x /usr/bin/env ]; then exec /usr/bin/env "$@"; else exec env "$@"; fi; }';

/**
 * `J directory` runs the function `j` as a child, and reports with the nonce in $_n: `R<pid>` on stdout when the child
 * starts, then on both streams `E`, as the kind of shell defines it, or `D` if the directory cannot be entered. The
 * child reports `R`, because this shell traps signals, and a signal sent before the child exists would be lost.
 * Descriptor 5 becomes the job's stdin.
 */
const RUN_JOB = `J() { if cd -P -- "$1"; then
    (printf %s "\${_n}R$$;";unset PWD OLDPWD SHLVL _n;j) <&5 ${JOB_PIPES}
    _s=$?; E; else W "\${_n}D;"; fi; }`;

/**
 * Defines `j` for {@link RUN_JOB}: it executes the command. A shell line is an argument of a separate shell, which
 * contains its syntax errors. Kept short, because some shells read one character at a time.
 * @param evaluates whether a fork of this shell may run a script of Berth's own, which saves the start of a shell.
 */
function defineJob(request: JobRequest, evaluates: boolean): ShellText {
  const { plain, special } = divideEnv(request.env);
  const exports = Object.entries(plain).map(([name, value]) => `export ${name}=${quote(value)};`);
  const [, , ownScript] = request.isOwnScript === true ? request.argv : [];
  if (evaluates && ownScript !== undefined && special.length === 0) {
    return `j() { ${exports.join("")}eval ${quote(ownScript)}; }\n`;
  }
  const exec = execCommand(request.argv, special).map(quote).join(" ");
  const [program = ""] = request.argv;
  // /bin/sh exists: it runs this text.
  const find = program === "/bin/sh" ? "" : `F ${quote(program)} "$PATH:";`;
  return `j() { ${exports.join("")}${find}${exec}; }\n`;
}

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Variables that dash, bash or busybox ash set, change, refuse or drop when they pass their environment to a command,
 * and those that the scripts of Berth use.
 */
const SHELLS_OWN =
  /^(_|BERTH_(NONCE|START|NTH|GO|STDIN|STDOUT|STDERR)|OPTIND|OPTERR|PPID|E?UID|GROUPS|LINENO|RANDOM|SECONDS|EPOCH.*|SRANDOM|SHELLOPTS|BASH.*|LC_.*|LANG|IFS|PS[124]|PIPESTATUS|ENV|DIRSTACK|FUNCNAME|FUNCNEST|HIST.*|COMP_.*|POSIXLY_CORRECT|PWD|OLDPWD|SHLVL|TIMEFORMAT|TMOUT)$/;

/**
 * Splits an environment into variables that every shell passes on unchanged, and those, as `NAME=value`, that only
 * `env` sets exactly.
 */
function divideEnv(env: JobRequest["env"]): {
  readonly plain: Readonly<Record<string, string>>;
  readonly special: readonly string[];
} {
  const plain: [name: string, value: string][] = [];
  const special: string[] = [];
  for (const [name, value] of Object.entries(env)) {
    if (IDENTIFIER.test(name) && !SHELLS_OWN.test(name)) plain.push([name, value]);
    else special.push(`${name}=${value}`);
  }
  // Assigning to the name `__proto__` of an object would do nothing.
  return { plain: Object.fromEntries(plain), special };
}

/**
 * The command that makes a shell become `argv`, with the special variables set. A program whose name starts with `-` also
 * goes through {@link EXEC_THROUGH_ENV}, because bash and busybox would read it as an option of `exec`.
 */
function execCommand(argv: readonly string[], special: readonly string[]): string[] {
  const throughEnv = special.length > 0 || argv[0]?.startsWith("-") === true;
  return throughEnv ? ["X", "--", ...special, ...argv] : ["exec", ...argv];
}

// Lanes.

/**
 * What a lane's shell reads after {@link PLAIN_START} or {@link PRELOADED_START}. Names are short, because every
 * lane of every sandbox reads this. Those of variables begin with an underscore: if the image had one of the same name,
 * this shell would change it for its jobs.
 *
 * - `A nonce directory` runs the job `j`, and reports its end and whether it left anything behind.
 * - `B` records the children of the container's first process, before a job.
 * - `N` succeeds if nothing of the job is left: no child of this shell, and no new child of the first process that
 *   still belongs to this session or holds its pipes. `N q` fails if that needs a closer check. Its stdin is closed, so
 *   that an opened file takes its place and the shell need not move descriptors.
 * - `T i` checks process i and its children for that.
 * - `F` looks up a job's program, `X` becomes it through `env`, `J` runs the job.
 * - `E` reports the end of a job: `E<code>`, then `C` (clean) or `D` (dirty).
 * - `G` gathers processes into $_k, as "pid:start ": those in session $_p, descendants of gathered ones, and those that
 *   hold the pipes of $_p. It skips processes that the engine started (without a parent in the container), which may
 *   hold the pipes to report the end. `L` succeeds if such an entry is still alive. The start time distinguishes a
 *   process from a later one with the same pid.
 *
 * A lane's shell has no parent in the container, or one that the engine started: in the first process's session, or
 * itself without a parent there. If it has another parent, or if the kernel lacks the list of children, no lane is ever
 * found clean, and each serves only one job.
 */
export const LANE_BOOT = `${SURVIVE_SIGNALS}
${FIND_PROGRAM}
${EXEC_THROUGH_ENV}
${RUN_JOB}
A() { _n=$1 _s=; trap '${AWAIT_READER};exit $_s' 0; B; J "$2"; }
_I=/proc/1/task/1/children
[ $PPID = 0 ] || { _x=; read -r _x </proc/$PPID/stat; set -- \${_x##*) }; [ "$4" = 1 ] || [ "$2" = 0 ] || _I=/-; }
B() { _g=-; read -r _g <$_I; }
T() { _i=$1 _x=; read -r _x </proc/$_i/stat; set -- \${_x##*) } Z
  case $1 in [ZX]) return 0; esac
  case $4 in $$) return 1;; 1) return 0; esac
  _x=; read -r _x </proc/$4/stat; set -- \${_x##*) }
  case $2 in 0) return 0;; 1) ;; *) _x=; read -r _x </proc/$2/stat; set -- \${_x##*) }; [ "$4" != 1 ] && [ "$2" != 0 ] || return 0; esac
  for _f in /proc/$_i/fd/*; do
    [ $_f -ef /proc/self/fd/3 ] || [ $_f -ef /proc/self/fd/4 ] && return 1
    [ -e $_f ] || [ ! -L $_f ] || return 1
  done
  [ -r /proc/$_i/fd ] || [ ! -d /proc/$_i ] || return 1
  for _f in /proc/$_i/task/*/children; do _x=; read -r _x <$_f; for _x in $_x; do T $_x || return 1; done; done; }
N() { [ "$_g" != - ] || return 1
  _c=; read -r _c </proc/$$/task/$$/children; [ ! "$_c" ] || return 1
  while :; do
    _c= _d=; read -r _c <$_I; read -r _d <$_I
    [ "$_c" = "$_d" ] || continue
    [ "$_c" != "$_g" ] || return 0
    _m=; for _j in $_c; do case " $_g " in *" $_j "*) continue; esac
      [ ! $1 ] || return 1
      _m=1; T $_j || return 1; _g="$_g $_j"; done
    [ $_m ] || return 0
  done; } <&-
W() { printf %s $1; printf %s $1 >&4; }
E() { cd /; if N q; then W "\${_n}E$_s;\${_n}C;"; else W "\${_n}E$_s;"; if N; then W "\${_n}C;"; else W "\${_n}D;"; fi; fi; }
G() { _o=1
  while [ $_o ]; do _o=
    for _d in /proc/[0-9]*; do _q=\${_d#/proc/}
      [ $_q != $$ ] && [ $_q != 1 ] || continue
      _x=; read -r _x <$_d/stat
      set -- \${_x##*) }
      [ "\${20}" ] || continue
      case $_k in *" $_q:\${20} "*) continue; esac
      case $1 in [ZX]) continue; esac
      [ $_q = $_p ] || [ "$2" != 0 ] || continue
      [ $_q = $_p ] || [ "$4" = $_p ] || case $_k in *" $2:"*) :;; *) H;; esac || continue
      _k="$_k$_q:\${20} " _o=1
    done
  done; }
H() { for _f in /proc/$_q/fd/*; do
    [ $_f -ef /proc/$_p/fd/3 ] || [ $_f -ef /proc/$_p/fd/4 ] && return 0
  done; return 1; }
L() { _x=; read -r _x </proc/\${1%:*}/stat
  set -- \${1#*:} \${_x##*) }
  case \${2:-X} in [ZX]) return 1; esac
  [ "\${21}" = $1 ]; }
`;

/**
 * Starts a shell that preloads a library, if the library is readable, and passes it the value of LD_PRELOAD that jobs
 * get.
 */
export function preloadingShell(library: string): readonly string[] {
  // A loader that cannot load the library writes an error to stderr.
  const quietly = PLAIN_START.trimEnd();
  const script = `${quietly}; _p=\${LD_PRELOAD-}; [ ! -r "$0" ] || export LD_PRELOAD="$0\${_p:+:$_p}"; exec /bin/sh -s -- "$_p"`;
  return ["/bin/sh", "-c", script, library];
}

/** What a {@link preloadingShell} reads first. */
export const PRELOADED_START = `if [ "$1" ]; then LD_PRELOAD=$1; else unset LD_PRELOAD; fi\n`;

/**
 * Follows {@link LANE_BOOT}: reports the shell's pid and start time, and `:u` if another process of its user, as every
 * job will be, cannot read its environment. Such a process can then neither read nor change its memory or descriptors
 * (ptrace(2), "Ptrace access mode checking").
 */
export function readyCommand(nonce: string): string {
  return `_u=; ({ :; } </proc/$$/environ && exit 8; exit 9); [ $? != 9 ] || _u=:u
read -r _x </proc/$$/stat; set -- \${_x##*) }; printf %s ${nonce}R$$:\${20}$_u\\; >&3
`;
}

/**
 * Makes the shell report `G` and exec a new shell, so that nothing is left of what a job may have done to its memory,
 * functions or traps. A shell may read ahead, so write nothing more before it has reported.
 */
export function renewCommand(nonce: string): string {
  return `printf %s ${nonce}G\\; >&3; exec /bin/sh 1>&3 2>&4 3>&- 4>&-\n`;
}

/** Makes the new shell report on both streams, which proves that both are empty. */
export function renewedCommand(nonce: string): string {
  return `W ${nonce}A\\;\n`;
}

/** Sends a signal to a process group: answers `y` or `n`. */
export function signalCommand({ pid, startTime, unsure }: Leader, signal: number): string {
  const look = unsure ? `L ${pid}:${startTime} && ` : "";
  return `${look}kill -${signal} -${pid} && _r=y || _r=n`;
}

/**
 * Starts to end the process tree of a session leader: gathers it and sends SIGTERM. Answers `n` if the leader is gone.
 */
export function terminateCommand({ pid, startTime, unsure }: Leader): string {
  const terminate = `_p=${pid} _k=" "; G; for _j in $_k; do L $_j && kill -15 \${_j%:*}; done; _r=y`;
  return unsure ? `if L ${pid}:${startTime}; then ${terminate}; else _r=n; fi` : terminate;
}

/** Kills what {@link terminateCommand} gathered, and what has joined since. Answers `y` when nothing is left. */
export function killCommand(pid: number): string {
  return `_p=${pid} _i=0 _l=1
while [ $_l ] && [ $_i -lt 200 ]; do _i=$((_i+1)) _l=; G; for _j in $_k; do L $_j && _l=1 && kill -9 \${_j%:*}; done; done
[ $_l ] && _r=n || _r=y`;
}

/** Reads the number of OOM kills in this control group (cgroup v2, then v1). Answers the number, or `-`. */
export const OOM_KILLS_COMMAND = `_r=-
for _f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
[ -r $_f ] && while read -r _x _y; do [ "$_x" != oom_kill ] || _r=$_y; done <$_f
done`;

/** Checks again whether a parked lane has become clean: answers `C` or `D`. */
export const RECHECK_COMMAND = "N && _r=C || _r=D";

/** Wraps a command that leaves its answer in $_r, so that the answer comes as a marker on both streams. */
export function askCommand(nonce: string, command: string): string {
  return `_n=${nonce}\n${command}\nW "\${_n}A$_r;"\n`;
}

/**
 * Makes a lane run a job.
 * @param undumpable whether other processes cannot reach a fork of its shell, which still contains the nonce.
 */
export function jobText(request: JobRequest, nonce: string, undumpable: boolean): ShellText {
  return `${defineJob(request, undumpable)}A ${nonce} ${quote(request.workingDir)}\n`;
}

// Prestarted shells.

/**
 * Reports `R`, its pid and start time. Then reads a nonce, and lines of text up to the same nonce, and runs them.
 * `read` consumes no byte after its line, so the rest is the job's stdin.
 */
export const PRESTARTED_SHELL = `${SURVIVE_SIGNALS}
exec 5<&0 3>&1 4>&2 >/dev/null 2>&1
W() { printf %s $1 >&3; printf %s $1 >&4; }
E() { W "\${_n}E$_s;"; }
${FIND_PROGRAM}
${EXEC_THROUGH_ENV}
${RUN_JOB}
read -r _x </proc/$$/stat
set -- \${_x##*) }
printf 'R%s:%s;' $$ \${20} >&3
read -r _n || exit
_t=
while IFS= read -r _x && [ "$_x" != "$_n" ]; do _t="$_t$_x
"; done
eval "$_t"
${AWAIT_READER}
exit $_s`;

/** Makes a {@link PRESTARTED_SHELL} run its job. */
export function prestartedJobText(request: JobRequest, nonce: string): ShellText {
  return `${nonce}\n${defineJob(request, false)}J ${quote(request.workingDir)}\n${nonce}\n`;
}

// Limits.

/** Linux accepts 2 MiB. The rest is for the image's variables, and for the script of the shell that starts a job. */
const MAX_PASSED_BYTES = 1792 * 1024;
/** What a string takes besides its bytes: the NUL at its end and the pointer to it. */
const BYTES_PER_STRING = 9;

/**
 * Checks that the kernel passes a program its arguments and its environment.
 * @throws `INVALID_ARGUMENT` if there is too much of them
 */
export function assertPassable({ argv, env }: JobRequest): void {
  const { plain, special } = divideEnv(env);
  const variables = Object.entries(plain).map(([name, value]) => `${name}=${value}`);
  // The special ones count twice: they are arguments of `env`, and may also be in the sandbox's environment.
  const strings = [...argv, ...variables, ...special, ...special];
  const bytes = strings.reduce((sum, text) => sum + Buffer.byteLength(text) + BYTES_PER_STRING, 0);
  if (bytes <= MAX_PASSED_BYTES) return;
  throw invalidArgument(
    "env",
    `the arguments and the environment, with the sandbox's variables and secrets, take ${bytes} bytes; at most ${MAX_PASSED_BYTES} can be passed to a program. Pass more through stdin or a file.`,
  );
}

// Plain jobs, each in its own shell.

/** Sets $BERTH_START to the start time of this shell. Uses no positional parameters and starts no process. */
const READ_START = `read -r BERTH_START 2>/dev/null </proc/$$/stat
BERTH_NTH=0
for BERTH_START in \${BERTH_START##*) }; do [ $((BERTH_NTH=BERTH_NTH+1)) = 20 ] && break; done`;

/**
 * Runs "$@" as a child, so that its end is reported even while other processes hold its pipes. The nonce comes over
 * stdin: a job can read its parent's arguments and environment, but not what the parent has read. Traps let the shell
 * survive a signal to its process group; the child, which has no traps, reports the start. The command gets the shell's
 * environment, so this script removes its own variables. The newline before the nonce comes is for the engine: the
 * first output proves that the shell runs.
 */
const WRAPPER = `${SURVIVE_SIGNALS}
unset BERTH_NONCE BERTH_START BERTH_NTH
printf '\\n'
read -r BERTH_NONCE || exit
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$BERTH_NONCE"; exit; }
case $1 in i) exec 5<&0;; *) exec 5</dev/null;; esac
shift 2
${FIND_PROGRAM}
${EXEC_THROUGH_ENV}
exec 3>&1 4>&2 >/dev/null 2>&1
${READ_START}
(printf '%sR%s;' "$BERTH_NONCE" "$$:$BERTH_START"; F "$1" "$PATH:"; shift; unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH; "$@") <&5 ${JOB_PIPES}
set -- $?
printf '%sE%s;' "$BERTH_NONCE" $1 >&3
printf '%sE%s;' "$BERTH_NONCE" $1 >&4
${AWAIT_READER}
exit $1`;

/**
 * With a terminal, the job replaces the shell: the terminal ends when the job ends. The job starts when a line arrives,
 * which is sent when the terminal has its size. The terminal's echo of that line is not part of the job's output.
 */
const TERMINAL_WRAPPER = `unset BERTH_NONCE BERTH_START BERTH_NTH
${READ_START}
read -r BERTH_NONCE || exit
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$1"; exit; }
printf '%sR%s;' "$1" "$$:$BERTH_START"
shift 2
${FIND_PROGRAM}
${EXEC_THROUGH_ENV}
F "$1" "$PATH:"
shift
unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH
"$@"`;

/** What the engine starts to run a plain job, and the go-ahead that its shell waits for: without it, nothing runs. */
export function plainJobCommand(
  { argv, env, workingDir, terminal, stdin }: JobRequest,
  nonce: string,
): {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly goAhead: ShellText;
} {
  const { plain, special } = divideEnv(env);
  const args = [workingDir, argv[0] ?? "", ...execCommand(argv, special)];
  return terminal
    ? { argv: ["/bin/sh", "-c", TERMINAL_WRAPPER, "sh", nonce, ...args], env: plain, goAhead: "\n" }
    : {
        argv: ["/bin/sh", "-c", WRAPPER, "sh", stdin ? "i" : "n", ...args],
        env: plain,
        goAhead: `${nonce}\n`,
      };
}

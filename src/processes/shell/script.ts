import type { JobRequest, Leader, LeaderId } from "./job.ts";

/*
 * Everything that Berth has shells in sandboxes run, and how it reads their answers. Plain `sh` of dash, bash and
 * busybox; README.md describes the protocol.
 */

/** Text for a shell: any bytes but NUL, carried as latin1. */
export type ShellText = string;

/** Quotes a string so that a shell takes it as one word, whatever it holds. */
function quote(text: string): ShellText {
  return `'${Buffer.from(text).toString("latin1").replaceAll("'", "'\\''")}'`;
}

/** Parses how a shell names itself: `<pid>:<start time>`, or the pid alone. */
export function parseLeader(text: string): LeaderId {
  const [pid, startTime = ""] = text.split(":");
  return { pid: Number(pid), startTime };
}

// What shells of every kind have in common.

/** Lets a shell outlive a signal to its process group. */
const SURVIVE_SIGNALS = "trap : HUP INT QUIT USR1 USR2 PIPE ALRM TERM";

/**
 * A lane's shell keeps the engine's pipes as 3 and 4, and /dev/null as 5. Its stdout stays what it was, since it writes
 * nothing there but markers, and to redirect each would take it six system calls; what it says of errors goes nowhere.
 */
export const PLAIN_START = "exec 3>&1 4>&2 2>/dev/null 5</dev/null\n";

/**
 * The redirections of a job. Its pipes are reopened through /proc: a job that sets O_NONBLOCK on its own would
 * otherwise truncate the marker that follows. They are opened for reading too: whoever writes when nobody else reads
 * waits, and does not get SIGPIPE.
 */
const JOB_PIPES = "1<>/proc/self/fd/3 2<>/proc/self/fd/4 3>&- 4>&- 5<&-";

/**
 * Runs when a job's shell has reported how the job ended: waits until a service is there, by reopening stdin.
 * The report is in the shell's pipes only for as long as it holds them. Without the service nobody has a named
 * pipe open for writing, and opening it blocks; opening other pipes never does.
 */
const AWAIT_READER = ": </proc/self/fd/0";

/** Names that a shell has itself, and that its `exec` does not run. */
const BUILTINS =
  "alias|bg|break|cd|command|continue|eval|exec|exit|export|fg|getopts|hash|jobs|local|read|readonly|return|set|shift|source|times|trap|type|ulimit|umask|unalias|unset|wait";

/**
 * `F program "$PATH:"` ends the shell as one does whose `exec` finds no program, in words that do not name a line of
 * this text. It uses no variable, since all may be the program's. A name that is nowhere may be a program inside the
 * shell, as busybox's are.
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
 * `J directory` runs the function `j` as a child and reports to both streams with the nonce in $n: `R<pid>` on stdout
 * when it starts, then `E` as the shell defines it, or `D` where the directory cannot be entered. `R` comes from the
 * child: this shell itself traps signals, and one sent before there is a child would be lost. Descriptor 5 becomes the
 * job's stdin.
 */
const RUN_JOB = `J() { if cd -P -- "$1"; then
    (printf %s "\${n}R$$;";unset PWD OLDPWD SHLVL n;j) <&5 ${JOB_PIPES}
    s=$?; E; else W "\${n}D;"; fi; }`;

/**
 * Defines `j` for {@link RUN_JOB}: it becomes the command. A shell line is an argument of its own shell, so its syntax
 * errors stay there. Kept short, since some shells read each character by itself.
 */
function defineJob(request: JobRequest): ShellText {
  const { plain, special } = divideEnv(request.env);
  const exports = Object.entries(plain).map(([name, value]) => `export ${name}=${quote(value)};`);
  const exec = execArguments(request.argv, special).map(quote).join(" ");
  const [program = ""] = request.argv;
  // What runs this is there.
  const find = program === "/bin/sh" ? "" : `F ${quote(program)} "$PATH:";`;
  return `j() { ${exports.join("")}${find}exec ${exec}; }\n`;
}

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Names that dash, bash or busybox ash set, change, refuse or drop between
 * their own environment and a command's.
 */
const SHELLS_OWN =
  /^(_|OPTIND|OPTERR|PPID|E?UID|GROUPS|LINENO|RANDOM|SECONDS|EPOCH.*|SRANDOM|SHELLOPTS|BASH.*|LC_.*|LANG|IFS|PS4|ENV|DIRSTACK|FUNCNAME|FUNCNEST|HIST.*|COMP_.*|POSIXLY_CORRECT|PWD|OLDPWD|SHLVL|TIMEFORMAT|TMOUT)$/;

/** Divides an environment into what every shell passes on unchanged and, as `NAME=value`, what only `env` sets exactly. */
function divideEnv(env: JobRequest["env"]): {
  readonly plain: Readonly<Record<string, string>>;
  readonly special: readonly string[];
} {
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
 * set. A program whose name starts with `-` goes through `env` too: bash and
 * busybox would read it as an option of `exec`.
 */
function execArguments(argv: readonly string[], special: readonly string[]): string[] {
  const throughEnv = special.length > 0 || argv[0]?.startsWith("-") === true;
  return throughEnv ? ["env", "--", ...special, ...argv] : [...argv];
}

// Lanes.

/**
 * What a lane's shell reads after {@link PLAIN_START} or {@link PRELOADED_START}.
 * One-letter names, because every lane of every sandbox reads this.
 *
 * - `A nonce directory` runs the job `j`, and reports its end and whether anything is left.
 * - `B` notes the children of the container's first process, before a job.
 * - `N` succeeds when nothing of the job is left: no child of this shell, and
 *   no new child of the first process that still belongs to this session or
 *   holds its pipes. `N q` gives up where that needs a closer look. Its stdin
 *   is closed, so that a file is opened in its place, and nothing is moved aside.
 * - `T i` looks at process i and its children for that.
 * - `F` looks for a job's program, `J` runs the job.
 * - `E` reports the end of a job: `E<code>`, then `C` (clean) or `D` (dirty).
 * - `G` gathers into $k, as "pid:start ", what is of session $p, descends from
 *   something gathered or holds the pipes of $p, but for what the engine started
 *   (no parent in the container), which may hold them to report the end; `L` succeeds when such an
 *   entry still lives. The start time distinguishes a pid from its later reuse.
 *
 * A lane's shell has no parent in the container, or one that the engine started:
 * in the first process's session, or itself without a parent there. Where it has
 * another, or the kernel lacks the list of children, nothing is ever found clean,
 * and a lane serves one job.
 */
export const LANE_BOOT = `${SURVIVE_SIGNALS}
${FIND_PROGRAM}
${RUN_JOB}
A() { n=$1; trap '${AWAIT_READER}' 0; B; J "$2"; }
I=/proc/1/task/1/children
[ $PPID = 0 ] || { x=; read -r x </proc/$PPID/stat; set -- \${x##*) }; [ "$4" = 1 ] || [ "$2" = 0 ] || I=/-; }
B() { g=-; read -r g <$I; }
T() { i=$1 x=; read -r x </proc/$i/stat; set -- \${x##*) } Z
  case $1 in [ZX]) return 0; esac
  case $4 in $$) return 1;; 1) return 0; esac
  x=; read -r x </proc/$4/stat; set -- \${x##*) }
  case $2 in 0) return 0;; 1) ;; *) x=; read -r x </proc/$2/stat; set -- \${x##*) }; [ "$4" != 1 ] && [ "$2" != 0 ] || return 0; esac
  for f in /proc/$i/fd/*; do
    [ $f -ef /proc/self/fd/3 ] || [ $f -ef /proc/self/fd/4 ] && return 1
    [ -e $f ] || [ ! -L $f ] || return 1
  done
  [ -r /proc/$i/fd ] || [ ! -d /proc/$i ] || return 1
  for f in /proc/$i/task/*/children; do x=; read -r x <$f; for x in $x; do T $x || return 1; done; done; }
N() { [ "$g" != - ] || return 1
  c=; read -r c </proc/$$/task/$$/children; [ ! "$c" ] || return 1
  while :; do
    c= d=; read -r c <$I; read -r d <$I
    [ "$c" = "$d" ] || continue
    [ "$c" != "$g" ] || return 0
    m=; for j in $c; do case " $g " in *" $j "*) continue; esac
      [ ! $1 ] || return 1
      m=1; T $j || return 1; g="$g $j"; done
    [ $m ] || return 0
  done; } <&-
W() { printf %s $1; printf %s $1 >&4; }
E() { cd /; if N q; then W "\${n}E$s;\${n}C;"; else W "\${n}E$s;"; if N; then W "\${n}C;"; else W "\${n}D;"; fi; fi; }
G() { o=1
  while [ $o ]; do o=
    for d in /proc/[0-9]*; do q=\${d#/proc/}
      [ $q != $$ ] && [ $q != 1 ] || continue
      x=; read -r x <$d/stat
      set -- \${x##*) }
      [ "\${20}" ] || continue
      case $k in *" $q:\${20} "*) continue; esac
      case $1 in [ZX]) continue; esac
      [ $q = $p ] || [ "$2" != 0 ] || continue
      [ $q = $p ] || [ "$4" = $p ] || case $k in *" $2:"*) :;; *) H;; esac || continue
      k="$k$q:\${20} " o=1
    done
  done; }
H() { for f in /proc/$q/fd/*; do
    [ $f -ef /proc/$p/fd/3 ] || [ $f -ef /proc/$p/fd/4 ] && return 0
  done; return 1; }
L() { x=; read -r x </proc/\${1%:*}/stat
  set -- \${1#*:} \${x##*) }
  case \${2:-X} in [ZX]) return 1; esac
  [ "\${21}" = $1 ]; }
`;

/**
 * Starts a shell that preloads a library where that can be read, and passes it
 * the value of LD_PRELOAD that jobs get.
 */
export function preloadingShell(library: string): readonly string[] {
  // A loader that cannot load it writes that to stderr.
  const quietly = PLAIN_START.trimEnd();
  const script = `${quietly}; p=\${LD_PRELOAD-}; [ ! -r "$0" ] || export LD_PRELOAD="$0\${p:+:$p}"; exec /bin/sh -s -- "$p"`;
  return ["/bin/sh", "-c", script, library];
}

/** What a {@link preloadingShell} reads first. */
export const PRELOADED_START = `if [ "$1" ]; then LD_PRELOAD=$1; else unset LD_PRELOAD; fi\n`;

/**
 * Follows {@link LANE_BOOT}: reports the shell's pid and start time, and `:u` where a process of its own user, as every
 * job will be, cannot read its environment. A process that may not read that may not read or change its memory or
 * descriptors either (ptrace(2), "Ptrace access mode checking").
 */
export function readyCommand(nonce: string): string {
  return `u=; ({ :; } </proc/$$/environ && exit 8; exit 9); [ $? != 9 ] || u=:u
read -r x </proc/$$/stat; set -- \${x##*) }; printf %s ${nonce}R$$:\${20}$u\\; >&3
`;
}

/**
 * Has the shell report that it goes, and exec a new one: nothing that a job did to its memory, its functions or its
 * traps is left. A shell may read ahead, so write nothing more before it has reported.
 */
export function renewCommand(nonce: string): string {
  return `printf %s ${nonce}G\\; >&3; exec /bin/sh 1>&3 2>&4 3>&- 4>&-\n`;
}

/** Reports the new shell on both streams, so that each is known to be empty. */
export function renewedCommand(nonce: string): string {
  return `W ${nonce}A\\;\n`;
}

/** Sends a signal to a process group: answers `y` or `n`. */
export function signalCommand({ pid, startTime, unsure }: Leader, signal: number): string {
  const look = unsure ? `L ${pid}:${startTime} && ` : "";
  return `${look}kill -${signal} -${pid} && r=y || r=n`;
}

/** Starts to end the process tree of a session leader: gathers it and sends SIGTERM. Answers `n` where the leader is gone. */
export function terminateCommand({ pid, startTime, unsure }: Leader): string {
  const terminate = `p=${pid} k=" "; G; for j in $k; do L $j && kill -15 \${j%:*}; done; r=y`;
  return unsure ? `if L ${pid}:${startTime}; then ${terminate}; else r=n; fi` : terminate;
}

/** Ends what {@link terminateCommand} gathered, and what has joined since: answers `y` when nothing is left. */
export function killCommand(pid: number): string {
  return `p=${pid} i=0 l=1
while [ $l ] && [ $i -lt 200 ]; do i=$((i+1)) l=; G; for j in $k; do L $j && l=1 && kill -9 \${j%:*}; done; done
[ $l ] && r=n || r=y`;
}

/** Counts the kernel's out-of-memory kills in this control group (cgroup v2, then v1): answers the count, or `-`. */
export const OOM_KILLS_COMMAND = `r=-
for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
[ -r $f ] && while read -r x y; do [ "$x" != oom_kill ] || r=$y; done <$f
done`;

/** Checks again whether a parked lane has become clean: answers `C` or `D`. */
export const RECHECK_COMMAND = "N && r=C || r=D";

/** Wraps a command that leaves its answer in $r, so that the answer comes as a marker on both streams. */
export function askCommand(nonce: string, command: string): string {
  return `n=${nonce}\n${command}\nW "\${n}A$r;"\n`;
}

/** Has a lane run a job. */
export function jobText(request: JobRequest, nonce: string): ShellText {
  return `${defineJob(request)}A ${nonce} ${quote(request.workingDir)}\n`;
}

// Shells that are started ahead of need for one job that reads stdin.

/**
 * Reports `R`, its pid and start time, then reads a nonce and lines of text up to the nonce again, and
 * runs them. `read` takes no byte more than its line, so what follows is the
 * job's stdin.
 */
export const PRESTARTED_SHELL = `${SURVIVE_SIGNALS}
exec 5<&0 3>&1 4>&2 >/dev/null 2>&1
W() { printf %s $1 >&3; printf %s $1 >&4; }
E() { W "\${n}E$s;"; }
${FIND_PROGRAM}
${RUN_JOB}
read -r x </proc/$$/stat
set -- \${x##*) }
printf 'R%s:%s;' $$ \${20} >&3
read -r n || exit
t=
while IFS= read -r x && [ "$x" != "$n" ]; do t="$t$x
"; done
eval "$t"
${AWAIT_READER}`;

/** Has a {@link PRESTARTED_SHELL} run its job. */
export function prestartedJobText(request: JobRequest, nonce: string): ShellText {
  return `${nonce}\n${defineJob(request)}J ${quote(request.workingDir)}\n${nonce}\n`;
}

// Plain jobs, each with a shell of its own.

/** Leaves in $BERTH_START when this shell was started. Uses no positional parameter and no process. */
const READ_START = `read -r BERTH_START 2>/dev/null </proc/$$/stat
BERTH_NTH=0
for BERTH_START in \${BERTH_START##*) }; do [ $((BERTH_NTH=BERTH_NTH+1)) = 20 ] && break; done`;

/**
 * Runs "$@" as a child, so that its end is reported even while others hold its pipes. The nonce comes over stdin: a
 * job can read its parent's arguments and environment, not what it has read. Traps let the shell outlive a signal to
 * its process group; the child, which has none, reports the start. The command's environment is the shell's own: its
 * variables have names that no command misses.
 */
const WRAPPER = `${SURVIVE_SIGNALS}
unset BERTH_NONCE BERTH_START BERTH_NTH
read -r BERTH_NONCE
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$BERTH_NONCE"; exit; }
case $1 in i) exec 5<&0;; *) exec 5</dev/null;; esac
shift 2
${FIND_PROGRAM}
exec 3>&1 4>&2 >/dev/null 2>&1
${READ_START}
(printf '%sR%s;' "$BERTH_NONCE" "$$:$BERTH_START"; F "$1" "$PATH:"; shift; unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH; exec "$@") <&5 ${JOB_PIPES}
set -- $?
printf '%sE%s;' "$BERTH_NONCE" $1 >&3
printf '%sE%s;' "$BERTH_NONCE" $1 >&4
${AWAIT_READER}`;

/**
 * With a terminal the job takes the shell's place: the terminal's end is its
 * end. It starts when a line comes in, by when the terminal has its size; the
 * terminal's echo of that line is not the job's output.
 */
const TERMINAL_WRAPPER = `unset BERTH_NONCE BERTH_START BERTH_NTH
${READ_START}
read -r BERTH_NONCE
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$1"; exit; }
printf '%sR%s;' "$1" "$$:$BERTH_START"
shift 2
${FIND_PROGRAM}
F "$1" "$PATH:"
shift
unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH
exec "$@"`;

/** What the engine starts to run a job with a shell of its own. */
export function plainJobCommand(
  { argv, env, workingDir, terminal, stdin }: JobRequest,
  nonce: string,
): {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly input?: Buffer;
} {
  const { plain, special } = divideEnv(env);
  const args = [workingDir, argv[0] ?? "", ...execArguments(argv, special)];
  // A terminal's job starts when its size is set.
  return terminal
    ? { argv: ["/bin/sh", "-c", TERMINAL_WRAPPER, "sh", nonce, ...args], env: plain }
    : {
        argv: ["/bin/sh", "-c", WRAPPER, "sh", stdin ? "i" : "n", ...args],
        env: plain,
        input: Buffer.from(`${nonce}\n`),
      };
}

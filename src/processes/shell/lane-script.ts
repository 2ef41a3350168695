import type { Leader } from "./job.ts";

/** A lane's shell keeps the engine's pipes as 3 and 4, and says nothing else by itself. */
export const PLAIN_START = "exec 3>&1 4>&2 >/dev/null 2>&1\n";

/**
 * What a lane's shell is told after {@link PLAIN_START} or {@link PRELOADED_START}; plain `sh` of dash, bash and busybox.
 * One-letter names, because every lane of every sandbox reads this.
 *
 * - `B` notes the children of the container's first process, before a job.
 * - `N` succeeds when nothing of the job is left: no child of this shell, and
 *   no new child of the first process that still belongs to this session or
 *   holds its pipes. `N q` gives up where that needs a closer look.
 * - `T i` looks at process i and its children for that.
 * - `E` tells the end of a job: `E<code>`, then `C` (clean) or `D` (dirty).
 * - `G` gathers into $k, as "pid:start ", what is of session $p, descends from
 *   something gathered or holds the pipes of $p; `L` says whether such an entry
 *   still lives. A start time tells a pid from its later reuse.
 *
 * Where the engine's processes have a parent in the container, or the kernel
 * lacks the list of children, nothing is ever found clean, and a lane serves
 * one job.
 */
export const LANE_BOOT = `trap : HUP INT QUIT USR1 USR2 PIPE ALRM TERM
I=/proc/1/task/1/children
[ $PPID = 0 ] || I=/-
B() { g=-; read -r g <$I; }
T() { i=$1 x=; read -r x </proc/$i/stat; set -- \${x##*) } Z
  case $1 in [ZX]) return 0; esac
  [ $4 != $$ ] || return 1
  x=; read -r x </proc/$4/stat; set -- \${x##*) }
  [ "$2" != 0 ] || return 0
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
  done; }
W() { printf %s $1 >&3; printf %s $1 >&4; }
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
 * Begins a shell that preloads a library where that can be read, and hands it
 * the value of LD_PRELOAD that jobs are to have.
 */
export function preloadingShell(library: string): readonly string[] {
  // A loader that cannot load it says so.
  const quietly = PLAIN_START.trimEnd();
  const script = `${quietly}; p=\${LD_PRELOAD-}; [ ! -r "$0" ] || export LD_PRELOAD="$0\${p:+:$p}"; exec /bin/sh -s -- "$p"`;
  return ["/bin/sh", "-c", script, library];
}

/** Begins what a {@link preloadingShell} reads. */
export const PRELOADED_START = `if [ "$1" ]; then LD_PRELOAD=$1; else unset LD_PRELOAD; fi\n`;

/**
 * The command that follows {@link LANE_BOOT}: it tells the shell's pid and start time, and `:u` where a process of its
 * own user, as every job will be, is kept from seeing its environment. Who may not see that may not see or change its
 * memory or descriptors either (ptrace(2), "Ptrace access mode checking").
 */
export function readyCommand(nonce: string): string {
  return `u=; ({ :; } </proc/$$/environ && exit 8; exit 9); [ $? != 9 ] || u=:u
read -r x </proc/$$/stat; set -- \${x##*) }; printf %s ${nonce}R$$:\${20}$u\\; >&3
`;
}

/**
 * Has the shell say that it goes, and become another one: nothing that a job did to its memory, its functions or its
 * traps is left. A shell may read ahead, so that what follows is not to be written before it has said so.
 */
export function renewCommand(nonce: string): string {
  return `printf %s ${nonce}G\\; >&3; exec /bin/sh 1>&3 2>&4 3>&- 4>&-\n`;
}

/** Tells of the new shell on both streams, so that each is known to be empty. */
export function renewedCommand(nonce: string): string {
  return `W ${nonce}A\\;\n`;
}

/** Sends a signal to a process group: answers `y` or `n`. */
export function signalCommand({ pid, startTime, unsure }: Leader, signal: number): string {
  const look = unsure ? `L ${pid}:${startTime} && ` : "";
  return `${look}kill -${signal} -${pid} && r=y || r=n`;
}

/** Begins to end the process tree of a session leader: gathers it and sends SIGTERM. Answers `n` where the leader is gone. */
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

/** Counts how often the kernel killed in this control group for want of memory (cgroup v2, then v1): answers the count, or `-`. */
export const OOM_KILLS_COMMAND = `r=-
for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
[ -r $f ] && while read -r x y; do [ "$x" != oom_kill ] || r=$y; done <$f
done`;

/** Looks again whether a parked lane has become clean: answers `C` or `D`. */
export const RECHECK_COMMAND = "N && r=C || r=D";

/** Wraps a command that leaves its answer in $r, so that the answer comes as a marker on both streams. */
export function askCommand(nonce: string, command: string): string {
  return `n=${nonce}\n${command}\nW "\${n}A$r;"\n`;
}

import { quote } from "../../base/shell-quote.ts";
import type { EngineMount, EngineUsage } from "../port.ts";
import { userEntry } from "../user-entry.ts";
import { LOOK_UP_USER } from "../user-lookup.ts";

/*
 * Scripts that Berth runs in pods. They work in the `sh` of dash, bash and busybox, and use no other program of the
 * image.
 */

/** A directory in a pod for Berth's scripts. Only root can change it. */
export const RUN_DIR = "/run/berth";
const ENTRY = `${RUN_DIR}/enter`;
/** The script that starts every process. */
export const SPAWN = `${RUN_DIR}/spawn`;

/** Exists if the image or the pod sets HOME, which then applies to every user, as on Docker. */
const SETS_HOME = `${RUN_DIR}/sets-home`;

/** The exit code of {@link SPAWN} on success. No broken connection reports this code. */
export const SPAWN_EXIT = 42;

/**
 * The byte before the nonce of the end. It does not occur in text, so a scanner never holds back a prompt as a possible
 * start of the marker.
 */
export const END_BYTE = "\x1e";
const END_BYTE_OCTAL = "\\036";

/** Maximum length of a line. A tty accepts at most 4,095 bytes. */
const LINE_BYTES = 1_000;

/**
 * Limits of core dumps and open files, which Kubernetes cannot set. If the node's limits are lower, setting them fails
 * and the node's apply.
 */
export const LIMITS = "ulimit -c 0 2>/dev/null; ulimit -n 16384 2>/dev/null;";

/** Variables that the kubelet sets in every container. They contain the API server's address. */
const CLUSTER_VARIABLES = [
  "KUBERNETES_SERVICE_HOST",
  "KUBERNETES_SERVICE_PORT",
  "KUBERNETES_SERVICE_PORT_HTTPS",
  "KUBERNETES_PORT",
  "KUBERNETES_PORT_443_TCP",
  "KUBERNETES_PORT_443_TCP_PROTO",
  "KUBERNETES_PORT_443_TCP_PORT",
  "KUBERNETES_PORT_443_TCP_ADDR",
];

/**
 * Looks up the program as the user, reports `<start>S<pid>;` and executes it, or reports `<start>X<code>;` with the
 * exit code of a shell that cannot run it. $1: the nonce; $2: how many of the remaining arguments are `env` and the
 * variables that only `env` can set. The program's PATH need not contain `env`.
 */
const BECOME = `BERTHZ_C=127
F() {
  [ -e "$1" ] || return 1
  BERTHZ_C=126
  [ ! -d "$1" ] && [ -x "$1" ]
}
P() {
  case $1 in */*) F "$1"; return ;; esac
  BERTHZ_P=$PATH:
  while [ "$BERTHZ_P" ]; do
    BERTHZ_D=\${BERTHZ_P%%:*} BERTHZ_P=\${BERTHZ_P#*:}
    ! F "\${BERTHZ_D:-.}/$1" || return 0
  done
  return 1
}
BERTHZ_N=$1 BERTHZ_S=$2; shift 2
[ "$BERTHZ_S" = 0 ] || [ ! -x /usr/bin/env ] || { shift; set -- /usr/bin/env "$@"; }
BERTHZ_A=; for BERTHZ_A do [ "$BERTHZ_S" -gt 0 ] || break; BERTHZ_S=$((BERTHZ_S-1)); done
P "$BERTHZ_A" || { printf '%sX%s;' "$BERTHZ_N" $BERTHZ_C; exit 0; }
unset OLDPWD SHLVL
printf '%sS%s;' "$BERTHZ_N" $$
exec "$@"
`;

/**
 * Starts a process, as root. It reads its request from stdin, because API servers and kubelets log command lines. The
 * request is lines up to an empty one. Together they are a shell's `set --` with
 *
 * - the nonce of the end, which only this shell knows,
 * - the nonce of the start,
 * - the user,
 * - `y` if the process has a terminal, `y` if it has stdin, `y` if the sandbox's environment sets HOME,
 * - how many arguments precede the program, then `NAME=VALUE...`, `--` and the arguments.
 *
 * On stdout it reports `<start>U;` for an unknown user, or what {@link BECOME} reports. When the process itself has
 * ended, it reports `\x1e<end>E<code>;` on both streams, which proves that no dying kubelet ended them. Then it waits
 * for EOF on its own stdin, because unread input would keep Kubernetes from reporting the end. Until then the code is
 * also in a file ({@link endCommand}), for services that read the streams slowly or not at all.
 *
 * With a terminal, the script executes the process in its place, because the process must lead the terminal's session.
 * Then only Kubernetes reports the end.
 */
const SPAWN_SCRIPT = `${LIMITS}
${LOOK_UP_USER}BERTHZ_NL='
'
BERTHZ_Q= BERTHZ_L=
while IFS= read -r BERTHZ_L && [ "$BERTHZ_L" ]; do BERTHZ_Q=$BERTHZ_Q$BERTHZ_L; done
[ ! "$BERTHZ_L" ] && [ "$BERTHZ_Q" ] || exit 1
eval "$BERTHZ_Q"
unset BERTHZ_Q BERTHZ_L ${CLUSTER_VARIABLES.join(" ")}
BERTHZ_END=$1 BERTHZ_START=$2 BERTHZ_TTY=$4 BERTHZ_STDIN=$5 BERTHZ_SETS_HOME=$6 BERTHZ_SPECIAL=$7
U "$3" || { printf '%sU;' "$BERTHZ_START"; exit ${SPAWN_EXIT}; }
shift 7
[ "$BERTHZ_SETS_HOME" ] || [ -e ${SETS_HOME} ] || export HOME="$BERTHZ_HOME"
while [ "$1" != -- ]; do command export "$1"; shift; done
shift
set -- "$BERTHZ_UID" "$BERTHZ_GID" "$BERTHZ_GID$BERTHZ_GROUPS" /bin/sh -c ${quote(BECOME)} sh "$BERTHZ_START" "$BERTHZ_SPECIAL" "$@"
if [ "$BERTHZ_UID" != 0 ]; then
  exec 5<&0 6>&1 7>&2
  chown "$BERTHZ_UID" /proc/$$/fd/5 /proc/$$/fd/6 /proc/$$/fd/7 >/dev/null 2>&1
  exec 5<&- 6>&- 7>&-
fi
[ ! "$BERTHZ_TTY" ] || exec ${ENTRY} "$@"
exec 3>&2 2>/dev/null
if [ "$BERTHZ_STDIN" ]; then ${ENTRY} "$@" 2>&3 3>&-; else ${ENTRY} "$@" 2>&3 3>&- </dev/null; fi
BERTHZ_E=$?
printf '%s;' $BERTHZ_E >${RUN_DIR}/$BERTHZ_START
printf '${END_BYTE_OCTAL}%sE%s;' "$BERTHZ_END" $BERTHZ_E
printf '${END_BYTE_OCTAL}%sE%s;' "$BERTHZ_END" $BERTHZ_E >&3
# A runtime closes stdin once nobody has the outputs any more.
cat >/dev/null || while read -r BERTHZ_L; do :; done
rm -f ${RUN_DIR}/$BERTHZ_START
exit ${SPAWN_EXIT}
`;

/** Prints the exit code of an ended process, followed by `;`. Prints nothing while it runs. */
export function endCommand(startNonce: string): string[] {
  return ["/bin/sh", "-c", `read -r c <${RUN_DIR}/${startNonce}; printf %s "$c"`];
}

/** A process for {@link SPAWN} to start. */
export interface SpawnText {
  /** Known only to the service and the script. */
  readonly endNonce: string;
  readonly startNonce: string;
  readonly user: string;
  readonly terminal: boolean;
  readonly stdin: boolean;
  readonly setsHome: boolean;
  readonly env: Readonly<Record<string, string>>;
  readonly argv: readonly string[];
}

/** Formats a request for {@link SPAWN}. */
export function spawnText(request: SpawnText): Buffer {
  const { plain, special } = divideEnv(request.env);
  // A shell would read a leading `-` as its own option.
  const throughEnv = special.length > 0 || request.argv[0]?.startsWith("-") === true;
  const before = throughEnv ? ["env", "--", ...special] : [];
  const flag = (on: boolean): string => (on ? "y" : "");
  const { terminal, stdin, setsHome } = request;
  const words = new Words();
  // Split in two parts: a terminal echoes this, and the echo must not look like a marker.
  const nonces = [request.endNonce, request.startNonce].map(
    (nonce) => `${quote(nonce.slice(0, 9))}${quote(nonce.slice(9))}`,
  );
  const rest = [request.user || "0", flag(terminal), flag(stdin), flag(setsHome), String(before.length)];
  const text = [...rest, ...plain, "--", ...before, ...request.argv].map((word) => words.add(word)).join(" ");
  const bytes = Buffer.from(`${words.assignments}set -- ${nonces.join(" ")} ${text}`);
  const lines: Buffer[] = [];
  for (let at = 0, end = 0; at < bytes.length; at = end) {
    end = at + LINE_BYTES;
    // Where the locale is UTF-8, bash takes the newline for a part of a character that it divides.
    while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
    lines.push(bytes.subarray(at, end), NEWLINE);
  }
  return Buffer.concat([...lines, NEWLINE]);
}

const NEWLINE = Buffer.from("\n");

/** Each byte as printf's format takes it, within single quotes. */
const FOR_PRINTF = Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte);
  return /[!-~]/.test(character) && !/[\\%']/.test(character)
    ? character
    : `\\${byte.toString(8).padStart(3, "0")}`;
});

/** Words of shell script, without characters that a terminal acts on. */
class Words {
  assignments = "";
  #count = 0;

  add(word: string): string {
    // Words may have hundreds of thousands of newlines, for which `replaceAll` takes forty times as long.
    if (!/[\x01-\x09\x0b-\x1f\x7f]/.test(word)) return quote(word).split("\n").join(`'"$BERTHZ_NL"'`);
    const name = `BERTHZ_W${this.#count++}`;
    let escaped = "";
    for (const byte of Buffer.from(word)) escaped += FOR_PRINTF[byte];
    this.assignments += `${name}=$(printf '${escaped}x');${name}=\${${name}%x};`;
    return `"$${name}"`;
  }
}

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/;
/**
 * Variables that dash, bash or busybox ash set, change, refuse or drop when they pass their environment to a program.
 */
const SHELLS_OWN =
  /^(_|BERTHZ_.*|OPTIND|OPTERR|PPID|E?UID|GROUPS|LINENO|RANDOM|SECONDS|EPOCH.*|SRANDOM|SHELLOPTS|BASH.*|LC_.*|LANG|IFS|PS[124]|ENV|DIRSTACK|FUNCNAME|FUNCNEST|HIST.*|COMP_.*|POSIXLY_CORRECT|PWD|OLDPWD|SHLVL|TIMEFORMAT|TMOUT|CDPATH|MAILPATH|MAIL|MAILCHECK)$/;

/** Whether a variable passes through a shell unchanged. */
function passesShells(name: string): boolean {
  return IDENTIFIER.test(name) && !SHELLS_OWN.test(name);
}

/** Whether a process has a variable of its container without being given it: {@link SPAWN} is a shell, and unsets some. */
export function passesSpawn(name: string): boolean {
  return passesShells(name) && !CLUSTER_VARIABLES.includes(name);
}

function divideEnv(env: Readonly<Record<string, string>>): {
  readonly plain: string[];
  readonly special: string[];
} {
  const entries = Object.entries(env).map(([name, value]) => ({ name, entry: `${name}=${value}` }));
  return {
    plain: entries.filter(({ name }) => passesShells(name)).map(({ entry }) => entry),
    special: entries.filter(({ name }) => !passesShells(name)).map(({ entry }) => entry),
  };
}

/**
 * The lines that {@link SETUP} reports. printf assembles them, so that an error message that quotes the script cannot
 * be mistaken for one.
 */
export const SETUP_MARKERS = {
  ready: "berth-ready",
  unknownUser: "berth-unknown-user",
  badWorkingDir: "berth-bad-working-dir",
  badVolume: "berth-bad-volume",
} as const;

/**
 * Runs once in a new pod, as root. Writes the scripts, creates the working directory ($1), makes the user ($2) its
 * owner, and opens volumes ($3...) to every user; the user also becomes the owner of those after a `g`. Reports on
 * stderr what it cannot do. A runtime sets HOME to that of root only if nothing else sets it.
 */
const SETUP = `set -u; umask 022; unset IFS
fail() { printf 'berth-%s\\n' "$1"; exit 1; }
printf %s ${quote(SPAWN_SCRIPT)} >${SPAWN} || exit 1
entry() { printf "$1" >${ENTRY} && chmod 755 ${ENTRY} && ${ENTRY} 0 0 0 /bin/sh -c :; } 2>/dev/null
entry '${octal("x64")}' || entry '${octal("arm64")}' || { echo "no program of Berth's runs on this node's processor" >&2; exit 1; }
${LOOK_UP_USER}
dir=$1 user=$2
shift 2
U 0 && [ "\${HOME:-$BERTHZ_HOME}" != "$BERTHZ_HOME" ] && : >${SETS_HOME}
U "$user" || fail unknown-user
for v do
  chmod 777 "\${v#?}" || fail bad-volume
  case $v in g*) chown "$BERTHZ_UID:$BERTHZ_GID" "\${v#?}" || fail bad-volume;; esac
done
if [ ! -d "$dir" ]; then
  mkdir -p -- "$dir" || fail bad-working-dir
  [ "$BERTHZ_UID" = 0 ] || chown -- "$BERTHZ_UID:$BERTHZ_GID" "$dir" || fail bad-working-dir
fi
printf 'berth-%s\\n' ready
`;

/** The argument list for the setup of a new pod. */
export function setupCommand(workingDir: string, user: string, mounts: readonly EngineMount[]): string[] {
  const volumes = mounts
    .filter(({ readOnly }) => !readOnly)
    .map(({ target, giveToUser }) => (giveToUser ? "g" : "o") + target);
  return ["/bin/sh", "-c", SETUP, "berth", workingDir, user || "0", ...volumes];
}

/**
 * Writes the user it runs as to the termination message, which the pod's status shows: `uid` if that user has this group
 * in the image, and so the others that the image gives it, else `uid:gid`.
 */
export const PROBE_COMMAND = [
  "/bin/sh",
  "-c",
  `${LOOK_UP_USER}while read -r n a x; do case $n in Uid:) u=$a;; Gid:) g=$a;; esac; done </proc/self/status
U "$u" && [ "$BERTHZ_GID" = "$g" ] || u=$u:$g
printf %s "$u" >/dev/termination-log`,
] as const;

/**
 * Prints how much the container uses, for {@link parseUsage}: memory in bytes without page cache that the kernel can
 * reclaim, CPU time in nanoseconds, and processes, including this shell.
 */
export const USAGE_COMMAND = [
  "/bin/sh",
  "-c",
  `r() { read -r v <"$1"; }
f() { n=0; while read -r k v; do case $k in "$1" | "\${3-$1}") n=$((n+v)); esac; done <"$2"; }
cd /sys/fs/cgroup
if r memory/memory.usage_in_bytes; then m=$v; f total_inactive_file memory/memory.stat total_active_file; r cpuacct/cpuacct.usage; c=$v; r pids/pids.current; p=$v
else r memory.current; m=$v; f usage_usec cpu.stat; c=\${n}000; f inactive_file memory.stat active_file; r pids.current; p=$v; fi 2>/dev/null
printf '%s %s %s\\n' "$((m-n))" "$c" "$p"`,
] as const;

/**
 * Parses what {@link USAGE_COMMAND} printed, without its shell. Undefined if it is not that: it comes from a shell of the
 * sandbox, which code in it may have replaced.
 */
export function parseUsage(printed: string): EngineUsage | undefined {
  const [, memory, cpu, pids] = /^(-?\d{1,15}) (\d{1,18}) (\d{1,7})\n$/.exec(printed) ?? [];
  if (!Number(pids)) return undefined;
  return { memoryBytes: Math.max(0, Number(memory)), cpuNanos: Number(cpu), pids: Number(pids) - 1 };
}

/** The executable for an architecture, escaped for printf. Nodes may have another architecture than the service. */
function octal(arch: NodeJS.Architecture): string {
  const program = userEntry(arch) ?? Buffer.alloc(0);
  return program.reduce((text, byte) => `${text}\\${byte.toString(8).padStart(3, "0")}`, "");
}

import type { Duplex } from "node:stream";
import { BerthError, invalidArgument } from "../../base/errors.ts";
import { PRINT_ID_RANGES } from "./container-users.ts";
import { Demux } from "./daemon.ts";
import { START_ZYGOTE } from "./zygote-script.ts";

/** How much output of a container to keep until it is ready. */
const MAX_REPORT_CHARS = 2048;
/** How much a container may print until it is ready, in Docker's frames. The script prints a few lines. */
const MAX_PRINTED_BYTES = 64 * 1024;

const NEEDS_SHELL = "The image needs a working /bin/sh";

/** What a container reports when it is ready. */
export interface SetupReport {
  /** Its user as `uid[:[gid]]`; empty: root. */
  readonly owner: string;
  /** Everything it printed, including its ranges of ids. */
  readonly printed: string;
}

/**
 * Reads the output of a container's main process, from before its start until it reports that it is ready. Fails with
 * what the process printed if it ends before that, prints too much or does not report in time.
 */
export function setupDone(output: Duplex, timeoutMs: number): Promise<SetupReport> {
  const { promise, resolve, reject } = Promise.withResolvers<SetupReport>();
  const text = { stdout: "", stderr: "" };
  const printed = (marker: string) => text.stdout.split("\n").includes(marker);
  const owner = () => new RegExp(`^${SETUP_MARKERS.owner}(.*)$`, "m").exec(text.stdout)?.[1] ?? "";
  const report = () => `${text.stderr}\n${text.stdout.replace(/^berth-.*$/gm, "")}`.trim();
  const demux = new Demux((stream, chunk) => {
    text[stream] += chunk.toString("utf8");
  });
  const timer = setTimeout(
    () => reject(startFailed(`it was not ready within ${timeoutMs / 1000} s`, report())),
    timeoutMs,
  );
  let bytes = 0;
  output.on("data", (chunk: Buffer) => {
    demux.push(chunk);
    // Not for each frame, of which a shell that prints single bytes makes thousands per chunk.
    if (printed(SETUP_MARKERS.ready)) resolve({ owner: owner(), printed: text.stdout });
    for (const stream of ["stdout", "stderr"] as const) text[stream] = text[stream].slice(-MAX_REPORT_CHARS);
    bytes += chunk.length;
    if (bytes > MAX_PRINTED_BYTES) {
      reject(startFailed(`it printed too much. ${NEEDS_SHELL}`, report()));
      output.destroy();
    }
  });
  output.once("error", () => {});
  output.once("close", () => {
    if (printed(SETUP_MARKERS.unknownUser))
      reject(invalidArgument("spec.user", "the image has no such user or group"));
    else if (printed(SETUP_MARKERS.badWorkingDir)) reject(invalidArgument("spec.working_dir", report()));
    else reject(startFailed(`its main process ended at once. ${NEEDS_SHELL}`, report()));
  });
  return promise.finally(() => clearTimeout(timer));
}

/** The error for a container that fails to start. `report` is what it or Docker printed. */
export function startFailed(problem: string, report: string, cause?: unknown): BerthError {
  const details = report === "" ? "." : `: ${report}`;
  return new BerthError("SANDBOX_START_FAILED", `The sandbox did not start: ${problem}${details}`, { cause });
}

/** The lines that the setup script reports. */
const SETUP_MARKERS = {
  ready: "berth-ready",
  unknownUser: "berth-unknown-user",
  badWorkingDir: "berth-bad-working-dir",
  /** Followed by the user as `uid[:[gid]]`, or by nothing for root. */
  owner: "berth-owner ",
} as const;

/**
 * The main process of every sandbox, as root: starts the zygote, creates the working directory, makes the user the
 * owner of it and of the `giveToUser` mounts, writes `/etc/hosts` if Docker has not (in a container without a network),
 * reports that it is ready and then blocks in a read. SIGTERM ends the read at once, and the read needs no other
 * process. The process also opens its stdin for writing, if it can, because Podman closes stdin with the first
 * attachment.
 *
 * It looks up user names in the container's own files, as Docker does. printf assembles the markers, so that an error
 * message that quotes the script cannot be mistaken for a marker.
 */
const SCRIPT = `${START_ZYGOTE}
shift
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset IFS
dir=$1 user=$2; shift 2
fail() { printf 'berth-%s\\n' "$1"; exit 1; }
lookup() {
  [ -r "$1" ] || return 1
  while IFS=: read -r name x id group x || [ -n "$name" ]; do
    [ "$name" != "$2" ] || return 0
  done <"$1"
  return 1
}
owner=
case $user in
  ''|0|root|0:*|root:*) ;;
  *)
    owner=\${user%%:*}
    case $owner in *[!0-9]*) lookup /etc/passwd "$owner" || fail unknown-user; owner=$id:$group ;; esac
    case $user in *:*)
      group=\${user#*:}
      case $group in *[!0-9]*) lookup /etc/group "$group" || fail unknown-user; group=$id ;; esac
      owner=\${owner%%:*}:$group ;;
    esac ;;
esac
if [ ! -d "$dir" ]; then
  mkdir -p -- "$dir" || fail bad-working-dir
  [ -z "$owner" ] || chown -- "$owner" "$dir" || fail bad-working-dir
fi
for mount do
  [ -z "$owner" ] || chown -- "$owner" "$mount" || exit 1
done
if [ -f /etc/hosts ] && [ ! -s /etc/hosts ]; then
  printf '127.0.0.1 localhost\\n::1 localhost\\n' >/etc/hosts
fi 2>/dev/null
${PRINT_ID_RANGES}
printf 'berth-owner %s\\n' "$owner"
printf 'berth-%s\\n' ready
if true <>/proc/self/fd/0; then exec <>/proc/self/fd/0; fi 2>/dev/null
read -r x
`;

/** The argument list of a sandbox's main process. All values are arguments, so nothing needs quoting. */
export function setupCommand(options: {
  /** Whether the container's environment sets HOME; otherwise each user's HOME is from /etc/passwd. */
  readonly setsHome: boolean;
  readonly workingDir: string;
  /** Name or `uid[:gid]`; empty: root. */
  readonly user: string;
  /** Mount targets that the user shall own. */
  readonly giveToUser: readonly string[];
}): string[] {
  const setsHome = options.setsHome ? "y" : "";
  return [
    "/bin/sh",
    "-c",
    SCRIPT,
    "berth",
    setsHome,
    options.workingDir,
    options.user,
    ...options.giveToUser,
  ];
}

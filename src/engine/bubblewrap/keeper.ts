import type { Socket } from "node:net";
import { quote } from "../../base/shell-quote.ts";
import { startTimeOf } from "../outside/host-process.ts";
import { BWRAP_FDS } from "./arguments.ts";
import { openPipes, type Started } from "./launcher.ts";
import { DEFAULT_PATH } from "./sandbox-user.ts";
import { joinText, pipesText, REPORTS_FD, reopenText, reportStartText } from "./shell-pipes.ts";

/** How much output of bwrap and the main process to keep. */
const MAX_REPORT_CHARS = 2048;

/** The service's side of a sandbox's keeper, which holds the outer user namespace open while it lives. */
export class Keeper {
  readonly #pid: number;
  readonly #startTime: string | undefined;
  readonly #output: Socket;
  readonly #status: Socket;
  readonly #initPid = Promise.withResolvers<number | undefined>();
  #child: { readonly pid: number; readonly startTime: string | undefined } | undefined;
  #printed = "";
  #statusText = "";
  #over = false;
  #killed = false;
  /** Resolves with bwrap's exit code when it has ended, and with it the sandbox. */
  readonly ended: Promise<number>;

  /** Opens its pipes and lets it continue. */
  constructor(keeper: Started, onOutput: (lines: readonly string[]) => void) {
    this.#pid = keeper.pid;
    this.#startTime = startTimeOf(keeper.pid);
    const { go, output, status } = openPipes(keeper, ({ reader, writer }) => ({
      // The keeper waits for a line from this pipe.
      go: writer(KEEPER_FDS.go),
      output: reader(KEEPER_FDS.output),
      status: reader(KEEPER_FDS.status),
    }));
    this.#output = output;
    this.#status = status;
    this.#output.on("data", (chunk) => {
      this.#printed = (this.#printed + chunk).slice(-MAX_REPORT_CHARS);
      onOutput(this.#printed.split("\n").slice(0, -1));
    });
    this.#status.on("data", (chunk) => this.#take(String(chunk)));
    this.ended = new Promise((resolve) => this.#status.once("close", () => resolve(this.#end())));
    go.end("\n");
  }

  /** The host's pid of the sandbox's process 1; undefined if bwrap ended before it reported one. */
  get initPid(): Promise<number | undefined> {
    return this.#initPid.promise;
  }

  /** Lines of {@link SETUP_MARKERS}. */
  get markers(): string[] {
    return this.#printed.split("\n").filter((line) => line.startsWith("berth-"));
  }

  /** What else bwrap and the main process have printed. */
  get printed(): string {
    return this.#printed.replace(/^berth-.*$/gm, "").trim();
  }

  get userNamespace(): string {
    return `/proc/${this.#pid}/fd/${KEEPER_FDS.userNamespace}`;
  }

  stopReading(): void {
    this.#output.destroy();
  }

  /** Kills the sandbox, but not before bwrap has reported its child: otherwise the child would outlive bwrap. */
  kill(): void {
    this.#killed = true;
    const { pid, startTime } = this.#child ?? {};
    if (pid !== undefined && !this.#over) signal(pid, startTime, "SIGKILL");
  }

  #take(text: string): void {
    this.#statusText = (this.#statusText + text).slice(-MAX_REPORT_CHARS);
    const pid = /"child-pid": (\d+)/.exec(this.#statusText)?.[1];
    if (this.#child !== undefined || pid === undefined) return;
    this.#child = { pid: Number(pid), startTime: startTimeOf(Number(pid)) };
    this.#initPid.resolve(this.#child.pid);
    if (this.#killed) this.kill();
  }

  #end(): number {
    this.#over = true;
    this.#initPid.resolve(undefined);
    this.#output.destroy();
    signal(this.#pid, this.#startTime, "SIGTERM");
    return Number(/"exit-code": (\d+)/.exec(this.#statusText)?.[1] ?? 137);
  }
}

/** Signals a process unless its pid has been reused. */
function signal(pid: number, startTime: string | undefined, name: NodeJS.Signals): void {
  if (startTime === undefined || startTimeOf(pid) !== startTime) return;
  try {
    process.kill(pid, name);
  } catch {
    // The process has ended.
  }
}

/** Descriptors of a keeper; those of bwrap are {@link BWRAP_FDS}. */
const KEEPER_FDS = {
  /** The output of bwrap, and of the main process until it is ready. */
  output: 7,
  /** bwrap's reports of the pid and the end of its child. */
  status: BWRAP_FDS.status,
  /** A line here lets the keeper continue. Afterwards it is the main process's stdin. */
  go: 9,
  /** In the end, the sandbox's outer user namespace. */
  userNamespace: BWRAP_FDS.args,
} as const;

interface KeeperPlan {
  readonly tag: number;
  readonly joinFiles: readonly string[];
  readonly bwrapArguments: readonly string[];
  /** Path of the filter program; undefined if there is no filter. */
  readonly filterFile: string | undefined;
  /** The main process. */
  readonly command: readonly string[];
}

/**
 * A sandbox's keeper, a shell on the host. It starts bwrap in the sandbox's control groups, opens the outer user
 * namespace while bwrap waits, and keeps it open so that attendants can enter. It ends the sandbox when the service is
 * gone, which it notices by EOF on the socket that it reads. SIGTERM ends the keeper and the sandbox.
 *
 * It must not end by a signal or with exit code 255, because xargs would then start nothing more.
 */
export function keeperScript({ tag, joinFiles, bwrapArguments, filterFile, command }: KeeperPlan): string {
  const { args, info, gate, filter, status } = BWRAP_FDS;
  const { output, go, userNamespace } = KEEPER_FDS;
  const both = {
    [args]: "<>",
    [info]: "<>",
    [gate]: "<>",
    [output]: "<>",
    [status]: "<>",
    [go]: "<>",
  } as const;
  const load = filterFile === undefined ? [] : ["--seccomp", String(filter)];
  const bwrap = ["bwrap", ...load, "--args", String(args), "--", ...command];
  const own = [
    ...[`</proc/self/fd/${go}`, `>/proc/self/fd/${output}`, "2>&1", `${REPORTS_FD}>&-`],
    ...[reopenText({ [args]: "<", [info]: ">", [gate]: "<", [status]: ">" }), `${go}>&-`],
    filterFile === undefined ? `${filter}>&-` : `${filter}<${quote(filterFile)}`,
  ];
  return `${pipesText(Object.keys(both).map(Number))}exec 2>/dev/null ${reopenText(both)}
printf '%s\\0' ${bwrapArguments.map(quote).join(" ")} >&${args}
(${joinText(joinFiles)}exec ${bwrap.map(quote).join(" ")}) ${own.join(" ")} &
b=$!
i=
trap 'kill -9 $i $b; wait $b; exit 0' TERM
exec ${args}>&- ${info}</proc/self/fd/${info}
${reportStartText(tag, "'$b'")}while read -r x; do
  case $x in *'"child-pid": '*) i=\${x#*'"child-pid": '} i=\${i%%[!0-9]*} ;; esac
  case $x in *'}'*) break ;; esac
done <&${info}
[ ! "$i" ] || exec ${userNamespace}</proc/$i/ns/user
read -r x <&${go}
exec ${info}<&- ${output}>&- ${status}>&- ${gate}>&-
read -r x <&${REPORTS_FD}
kill -9 $i $b
wait $b
exit 0
`;
}

/** The lines that the setup script reports. */
export const SETUP_MARKERS = { ready: "berth-ready", badWorkingDir: "berth-bad-working-dir" } as const;

/**
 * The main process of every sandbox: creates the working directory, reports that it is ready, closes its output and
 * then blocks in a read. The read also ends when the service does, which holds the other end of the pipe.
 */
const SCRIPT = `PATH=${DEFAULT_PATH}
unset IFS
umask 022
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
fail() { printf 'berth-%s\\n' "$1"; exit 1; }
[ -d "$1" ] || mkdir -p -- "$1" || fail bad-working-dir
printf 'berth-%s\\n' ready
exec >/dev/null 2>&1
read -r x
`;

/** The argument list of a sandbox's main process. The directory is an argument, so nothing needs quoting. */
export function setupCommand(workingDir: string): string[] {
  return ["/bin/sh", "-c", SCRIPT, "berth", workingDir];
}

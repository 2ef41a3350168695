import type { Socket } from "node:net";
import { BWRAP_FDS } from "./arguments.ts";
import type { Started } from "./launcher.ts";
import { startOf } from "./process-tree.ts";
import {
  pipesText,
  quote,
  REPORTS_FD,
  readerOf,
  reopenText,
  reportStartText,
  writerOf,
} from "./shell-pipes.ts";

/** How much of what bwrap and the main process print is kept. */
const MAX_REPORT_CHARS = 2048;

/** A sandbox's keeper, seen from the service; as long as it lives it has the outer user namespace open. */
export class Keeper {
  readonly #pid: number;
  readonly #begun: string | undefined;
  readonly #output: Socket;
  readonly #status: Socket;
  readonly #initPid = Promise.withResolvers<number | undefined>();
  #child: { readonly pid: number; readonly begun: string | undefined } | undefined;
  #said = "";
  #told = "";
  #over = false;
  #doomed = false;
  /** Resolves with bwrap's exit code when it has ended, and with it the sandbox. */
  readonly ended: Promise<number>;

  /** Takes its pipes and lets it go on. */
  constructor({ pid }: Started, onOutput: (lines: readonly string[]) => void) {
    this.#pid = pid;
    this.#begun = startOf(pid);
    // It waits until this is written to.
    const go = writerOf(pid, KEEPER_FDS.go);
    this.#output = readerOf(pid, KEEPER_FDS.output);
    this.#status = readerOf(pid, KEEPER_FDS.status);
    this.#output.on("data", (chunk) => {
      this.#said = (this.#said + chunk).slice(-MAX_REPORT_CHARS);
      onOutput(this.#said.split("\n").slice(0, -1));
    });
    this.#status.on("data", (chunk) => this.#take(String(chunk)));
    this.ended = new Promise((resolve) => this.#status.once("close", () => resolve(this.#end())));
    go.end("\n");
  }

  /** The host's number of the sandbox's process 1; undefined where it ended before it had one. */
  get initPid(): Promise<number | undefined> {
    return this.#initPid.promise;
  }

  /** Lines that the main process's setup is known by. */
  get markers(): string[] {
    return this.#said.split("\n").filter((line) => line.startsWith("berth-"));
  }

  /** What bwrap and the main process have said. */
  get said(): string {
    return this.#said.replace(/^berth-.*$/gm, "").trim();
  }

  get userNamespace(): string {
    return `/proc/${this.#pid}/fd/${KEEPER_FDS.userNamespace}`;
  }

  /** The main process has no more to say. */
  hearNoMore(): void {
    this.#output.destroy();
  }

  /** Ends the sandbox. As long as bwrap has not told its child, that one would not end with it. */
  kill(): void {
    this.#doomed = true;
    const { pid, begun } = this.#child ?? {};
    if (pid !== undefined && !this.#over) signal(pid, begun, "SIGKILL");
  }

  #take(text: string): void {
    this.#told = (this.#told + text).slice(-MAX_REPORT_CHARS);
    const pid = /"child-pid": (\d+)/.exec(this.#told)?.[1];
    if (this.#child !== undefined || pid === undefined) return;
    this.#child = { pid: Number(pid), begun: startOf(Number(pid)) };
    this.#initPid.resolve(this.#child.pid);
    if (this.#doomed) this.kill();
  }

  #end(): number {
    this.#over = true;
    this.#initPid.resolve(undefined);
    this.#output.destroy();
    signal(this.#pid, this.#begun, "SIGTERM");
    return Number(/"exit-code": (\d+)/.exec(this.#told)?.[1] ?? 137);
  }
}

/** Sends it where the number is not somebody else's by now. */
function signal(pid: number, begun: string | undefined, name: NodeJS.Signals): void {
  if (begun === undefined || startOf(pid) !== begun) return;
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}

/** Descriptors of a keeper. What bwrap gets has the numbers that {@link BWRAP_FDS} says. */
export const KEEPER_FDS = {
  /** What bwrap and the main process say until that is ready. */
  output: 7,
  /** What bwrap tells of the number and the end of its child. */
  status: BWRAP_FDS.status,
  /** A line in it lets the keeper go on; then it is the main process's stdin. */
  go: 9,
  /** At last, the sandbox's outer user namespace. */
  userNamespace: BWRAP_FDS.args,
} as const;

/** What a sandbox's keeper is told. */
export interface KeeperPlan {
  readonly tag: number;
  readonly joinFiles: readonly string[];
  readonly bwrapArguments: readonly string[];
  /** The main process. */
  readonly command: readonly string[];
}

/**
 * A sandbox's keeper, a shell of the host's: starts bwrap in the sandbox's
 * control groups, opens the outer user namespace while bwrap is held up, and
 * keeps it open for whoever is to enter. It ends the sandbox when the service
 * is gone, which is the end of the socket that it reads. SIGTERM ends both.
 *
 * Nothing may end it with a signal or 255: xargs would start nothing more.
 */
export function keeperScript({ tag, joinFiles, bwrapArguments, command }: KeeperPlan): string {
  const { args, info, gate, status } = BWRAP_FDS;
  const { output, go, userNamespace } = KEEPER_FDS;
  const both = {
    [args]: "<>",
    [info]: "<>",
    [gate]: "<>",
    [output]: "<>",
    [status]: "<>",
    [go]: "<>",
  } as const;
  const bwrap = ["bwrap", "--args", String(args), "--", ...command];
  const own = [
    ...[`</proc/self/fd/${go}`, `>/proc/self/fd/${output}`, "2>&1", `${REPORTS_FD}>&-`],
    ...[reopenText({ [args]: "<", [info]: ">", [gate]: "<", [status]: ">" }), `${output}>&-`, `${go}>&-`],
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

/** Has a shell of one thread join control groups. */
export function joinText(files: readonly string[]): string {
  return files.map((file) => `echo 0 >${quote(file)} || exit 125\n`).join("");
}

/** What the setup tells on its output, each on a line of its own. */
export const SETUP_MARKERS = { ready: "berth-ready", badWorkingDir: "berth-bad-working-dir" } as const;

/** Where programs are looked for, unless a spec's environment says otherwise. */
export const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * The main process of every sandbox: makes the working dir, says that it is
 * ready, lets go of its output and then blocks in a read. The read also ends
 * with the service, whose end of the pipe it is.
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

/** The whole argument list of a sandbox's main process. The value goes as an argument, so nothing needs quoting. */
export function setupCommand(workingDir: string): string[] {
  return ["/bin/sh", "-c", SCRIPT, "berth", workingDir];
}

import type { Socket } from "node:net";
import { KEEPER_FDS } from "./keeper-script.ts";
import { readerOf, writerOf } from "./pipe-ends.ts";
import { startOf } from "./process-tree.ts";
import type { Started } from "./reports.ts";

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

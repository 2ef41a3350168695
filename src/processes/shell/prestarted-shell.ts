import { abortError } from "../../base/errors.ts";
import type { Engine, OutputSink, SpawnedProcess } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import type { Job, JobOutput, JobRequest, LeaderId } from "./job.ts";
import { childText } from "./lane-text.ts";
import { parseLeader } from "./leader-text.ts";
import { PlainJob } from "./plain-job.ts";
import { ShellGoneError, shellGone } from "./shell-gone.ts";
import { AWAIT_READER } from "./shell-text.ts";

/**
 * Says `R`, its pid and start time, then reads a nonce and lines of text up to the nonce again, and
 * runs them. `read` takes no byte more than its line, so what follows is the
 * job's stdin.
 */
const WAIT = `trap : HUP INT QUIT USR1 USR2 PIPE ALRM TERM
exec 5<&0 3>&1 4>&2 >/dev/null 2>&1
W() { printf %s $1 >&3; printf %s $1 >&4; }
E() { W "\${n}E$s;"; }
read -r x </proc/$$/stat
set -- \${x##*) }
printf 'R%s:%s;' $$ \${20} >&3
read -r n || exit
t=
while IFS= read -r x && [ "$x" != "$n" ]; do t="$t$x
"; done
eval "$t"
${AWAIT_READER}`;

const OPEN_TIMEOUT_MS = 15_000;

/** More than this is not what such a shell says. */
const MAX_READY = 64;

/** A shell opened ahead of need for one job that reads stdin: its own stdin becomes the job's. */
export class PrestartedShell implements LeaderId {
  readonly #spawned: SpawnedProcess;
  readonly pid: number;
  readonly startTime: string;
  #job: PlainJob | undefined;
  #ended: { readonly error: Error | undefined } | undefined;

  private constructor(spawned: SpawnedProcess, leader: LeaderId) {
    this.#spawned = spawned;
    this.pid = leader.pid;
    this.startTime = leader.startTime;
  }

  /** Opens one; resolves when it waits, and fails where that takes longer than `timeoutMs`. */
  static async open(
    engine: Engine,
    sandbox: LeasedSandbox,
    signal: AbortSignal,
    timeoutMs = OPEN_TIMEOUT_MS,
  ): Promise<PrestartedShell> {
    const ready = Promise.withResolvers<void>();
    ready.promise.catch(() => {});
    let said = "";
    let shell: PrestartedShell | undefined;
    const sink: OutputSink = {
      data: (stream, chunk) => {
        if (shell !== undefined) return shell.#job?.sink.data(stream, chunk);
        said = (said + chunk.toString("latin1")).slice(0, MAX_READY);
        if (said.includes(";")) ready.resolve();
      },
      end: (error) => {
        ready.reject(shellGone("", error));
        if (shell !== undefined) shell.#end(error);
      },
    };
    const request = { argv: ["/bin/sh", "-c", WAIT], user: sandbox.user, stdin: true };
    const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    const onAbort = (): void => ready.reject(abortError(limit));
    limit.addEventListener("abort", onAbort, { once: true });
    const spawned = await engine.spawn(sandbox.ref, request, sink, limit);
    try {
      await ready.promise;
    } catch (error) {
      spawned.close();
      throw error;
    } finally {
      limit.removeEventListener("abort", onAbort);
    }
    shell = new PrestartedShell(spawned, parseLeader(said.slice(1, said.indexOf(";"))));
    return shell;
  }

  /** Whether it can still be given a job. */
  get alive(): boolean {
    return this.#ended === undefined;
  }

  /** Runs its one job; undefined where the shell had ended before that began. */
  async run(request: JobRequest, output: JobOutput): Promise<Job | undefined> {
    const job = new PlainJob(output, false, this.startTime);
    this.#job = job;
    const text = `${job.nonce}\n${childText(request, "<&5")}${job.nonce}\n`;
    // A write that fails is a shell that has ended, and that is told by its streams.
    this.#spawned.writeStdin(Buffer.from(text, "latin1")).catch(() => {});
    if (this.#ended !== undefined) job.sink.end(this.#ended.error);
    try {
      await job.begin(this.#spawned, request);
      return job;
    } catch (error) {
      if (error instanceof ShellGoneError) return undefined;
      throw error;
    }
  }

  /** Lets it end. */
  retire(): void {
    this.#spawned.closeStdin();
  }

  #end(error: Error | undefined): void {
    this.#ended = { error };
    this.#job?.sink.end(error);
  }
}

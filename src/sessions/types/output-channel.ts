import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../base/async.ts";
import { BerthError } from "../../base/errors.ts";
import type { OutputStream } from "../../engine/port.ts";
import type { Job, JobRunner } from "../../processes/shell/job.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";

/** Prints its pid, keeps its pipes open until its stdin ends, and copies its stdin to both. */
const HOLD = `printf '%s\\n' $$; while read -r x; do printf %s "$x"; printf %s "$x" >&2; done`;
const OPEN_TIMEOUT_MS = 30_000;
/** More than a pid and a newline. */
const MAX_SAID_CHARS = 64;

/**
 * A pair of pipes to which an interpreter writes the output of an execution, by reopening them under /proc. Output
 * between executions comes from leftovers: it is read slowly and dropped.
 */
export class OutputChannel {
  /** Paths in the sandbox. */
  readonly stdout: string;
  readonly stderr: string;
  /** The job that owns these pipes. */
  readonly job: Job;
  #taker: ((stream: OutputStream, chunk: Buffer) => void) | undefined;

  constructor(job: Job, paths: { readonly stdout: string; readonly stderr: string }) {
    this.job = job;
    this.stdout = paths.stdout;
    this.stderr = paths.stderr;
  }

  /** Receives the output. Undefined: it is dropped. */
  get taker(): ((stream: OutputStream, chunk: Buffer) => void) | undefined {
    return this.#taker;
  }

  set taker(taker: ((stream: OutputStream, chunk: Buffer) => void) | undefined) {
    this.#taker = taker;
    if (taker === undefined) this.job.trickle();
    else this.job.resume();
  }

  /** Opens another channel, with its own process to hold it. */
  static async open(runner: JobRunner, sandbox: LeasedSandbox, signal: AbortSignal): Promise<OutputChannel> {
    let channel: OutputChannel | undefined;
    let said = "";
    const ready = Promise.withResolvers<number>();
    ready.promise.catch(() => {});
    const job = await runner.start(
      sandbox,
      {
        argv: ["/bin/sh", "-c", HOLD],
        env: {},
        workingDir: "/",
        user: sandbox.user,
        stdin: true,
        terminal: undefined,
      },
      (stream, chunk) => {
        if (channel !== undefined) return channel.taker?.(stream, chunk);
        if (stream === "stdout") said = (said + chunk.toString("latin1")).slice(-MAX_SAID_CHARS);
        if (said.endsWith("\n")) ready.resolve(Number(said));
      },
      signal,
    );
    const gone = job.end.then(() => {
      throw new BerthError("ENGINE_UNAVAILABLE", "A process in the sandbox ended at once.");
    });
    gone.catch(() => {});
    const timer = new AbortController();
    const late = sleep(OPEN_TIMEOUT_MS, undefined, { signal: timer.signal, ref: false }).then(() => {
      throw new BerthError("ENGINE_UNAVAILABLE", "A process in the sandbox did not start in time.");
    });
    late.catch(() => {});
    try {
      const pid = await untilAborted(Promise.race([ready.promise, gone, late]), signal);
      channel = new OutputChannel(job, { stdout: `/proc/${pid}/fd/1`, stderr: `/proc/${pid}/fd/2` });
      return channel;
    } catch (error) {
      job.closeStdin();
      job.close();
      throw error;
    } finally {
      timer.abort();
    }
  }
}

/**
 * Questions to lanes about an interpreter's processes. They run in dash, bash and busybox `sh` and use only builtins.
 * Each leaves its answer in $_r.
 */

/**
 * Signals the interpreter, then its descendants that are not in `spare`. The interpreter comes first, so that it treats
 * a child's end as part of the interruption. A signal of 0: none.
 */
export function interruptProbe(
  pid: number,
  spare: Iterable<number>,
  { own, children }: { readonly own: number; readonly children: number },
): string {
  return `_s=" ${pid} " _v=" ${[...spare].join(" ")} " _o=1
while [ $_o ]; do _o=
for _d in /proc/[0-9]*; do _q=\${_d#/proc/}
case "$_s$_v" in *" $_q "*) continue;; esac
_x=; read -r _x <$_d/stat || continue
set -- \${_x##*) }
case $_s in *" $2 "*) _s="$_s$_q " _o=1;; esac
done; done
${own > 0 ? `kill -${own} ${pid}` : ":"}
for _q in $_s; do [ $_q = ${pid} ] || kill -${children} $_q; done
_r=y`;
}

/**
 * Whether any process that is not in `spare` holds one of two pipes: answers `y` or `n`. A process whose descriptors
 * cannot be read counts as a holder.
 */
export function holdersProbe(
  pipes: { readonly stdout: string; readonly stderr: string },
  spare: Iterable<number>,
): string {
  return `_v=" $$ ${[...spare].join(" ")} " _r=n _l=
while [ "$_l" != "$_v" ] && [ $_r = n ]; do _l=$_v
for _d in /proc/[0-9]*; do _q=\${_d#/proc/}
case $_v in *" $_q "*) continue;; esac
_k=y
for _f in $_d/fd/*; do
if [ $_f -ef ${pipes.stdout} ] || [ $_f -ef ${pipes.stderr} ]; then _r=y; break 2; fi
[ -e $_f ] || [ -L $_f ] || _k=
done
if [ $_k ]; then _v="$_v$_q "
elif [ -d $_d ] && ! [ -r $_d/fd ]; then _r=y; break
elif [ -d $_d ]; then _v="$_v$_q "; fi
done; done`;
}

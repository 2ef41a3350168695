import { throwIfAborted } from "../../base/errors.ts";
import type { Engine } from "../../engine/port.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import type { Job, JobOutput, JobRequest, JobRunner } from "./job.ts";
import { PlainJob } from "./plain-job.ts";
import { divideEnv, execArguments } from "./shell-env.ts";
import { AWAIT_READER } from "./shell-text.ts";

/** Leaves in $BERTH_START when this shell was started. No positional parameter is touched, and no process needed. */
const READ_START = `read -r BERTH_START 2>/dev/null </proc/$$/stat
BERTH_NTH=0
for BERTH_START in \${BERTH_START##*) }; do [ $((BERTH_NTH=BERTH_NTH+1)) = 20 ] && break; done`;

/**
 * Runs "$@" as a child, so that its end is told even while others hold its
 * pipes. The nonce comes over stdin: a job can read its parent's arguments and
 * environment, not what it has read. Reopening the pipes through /proc keeps a
 * job's O_NONBLOCK from the marker that follows; for reading too, so that whoever writes when
 * nobody else reads waits, and is not ended. Traps let the shell outlive a
 * signal to its process group; the child, which has none, tells the beginning.
 * The command's environment is the shell's own: its variables have names that
 * no command misses.
 */
const WRAPPER = `trap : HUP INT QUIT USR1 USR2 PIPE ALRM TERM
unset BERTH_NONCE BERTH_START BERTH_NTH
read -r BERTH_NONCE
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$BERTH_NONCE"; exit; }
case $1 in i) exec 5<&0;; *) exec 5</dev/null;; esac
shift 2
exec 3>&1 4>&2 >/dev/null 2>&1
${READ_START}
(printf '%sR%s;' "$BERTH_NONCE" "$$:$BERTH_START"; unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH; exec "$@") <&5 1<>/proc/self/fd/3 2<>/proc/self/fd/4 3>&- 4>&- 5<&-
set -- $?
printf '%sE%s;' "$BERTH_NONCE" $1 >&3
printf '%sE%s;' "$BERTH_NONCE" $1 >&4
${AWAIT_READER}`;

/**
 * With a terminal the job takes the shell's place: the terminal's end is its
 * end. It begins when a line comes in, by when the terminal has its size; the
 * terminal's echo of that line is not the job's output.
 */
const TERMINAL_WRAPPER = `unset BERTH_NONCE BERTH_START BERTH_NTH
${READ_START}
read -r BERTH_NONCE
cd -P -- "$2" 2>/dev/null || { printf '%sD;' "$1"; exit; }
printf '%sR%s;' "$1" "$$:$BERTH_START"
shift 2
unset PWD OLDPWD SHLVL BERTH_NONCE BERTH_START BERTH_NTH
exec "$@"`;

/** Starts each job with an engine call of its own. */
export class PlainRunner implements JobRunner {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  async start(
    sandbox: LeasedSandbox,
    request: JobRequest,
    output: JobOutput,
    signal: AbortSignal,
  ): Promise<Job> {
    throwIfAborted(signal);
    const job = new PlainJob(output, request.terminal !== undefined);
    const { plain, special } = divideEnv(request.env);
    const args = execArguments(request.argv, special);
    const [script, first] = request.terminal
      ? [TERMINAL_WRAPPER, job.nonce]
      : [WRAPPER, request.stdin ? "i" : "n"];
    const spawned = await this.#engine.spawn(
      sandbox.ref,
      {
        argv: ["/bin/sh", "-c", script, "sh", first, request.workingDir, ...args],
        env: plain,
        user: request.user,
        stdin: true,
        // A terminal's job begins when its size is set.
        ...(!request.terminal && { input: Buffer.from(`${job.nonce}\n`) }),
        terminal: request.terminal,
        dropSignal: signal,
      },
      job.sink,
      request.limit,
    );
    await job.begin(spawned, request);
    return job;
  }
}

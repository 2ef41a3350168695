import { BerthError } from "../core/errors.ts";
import type { LeasedSandbox } from "../core/lease.ts";
import type { Engine, SpawnedProcess } from "../core/ports/engine.ts";

/**
 * Ends a process tree, in shell builtins alone. $1 is the pid of the job's
 * session leader. `S` gathers into $k, as " pid:start ", whatever is of its
 * session, descends from a gathered process or holds the leader's pipes; a
 * start time tells a pid from its later reuse. First SIGTERM, then, when a line
 * comes in or stdin ends, SIGKILL in rounds until nothing gathered is left.
 */
const KILL_TREE = `p=$1 k=" "
S() { more=1
  while [ $more ]; do more=
    for d in /proc/[0-9]*; do q=\${d#/proc/}
      [ $q != $$ ] && [ $q != 1 ] || continue
      x=; { read -r x <$d/stat; } 2>/dev/null
      set -- \${x##*) }
      [ "\${20}" ] || continue
      case $k in *" $q:\${20} "*) continue; esac
      case $1 in [ZX]) continue; esac
      [ $q = $p ] || [ "$4" = $p ] || case $k in *" $2:"*) :;; *) H $q;; esac || continue
      k="$k$q:\${20} " more=1
    done
  done; }
H() { for f in /proc/$1/fd/*; do
    [ $f -ef /proc/$p/fd/3 ] || [ $f -ef /proc/$p/fd/4 ] && return 0
  done; return 1; }
A() { x=; { read -r x </proc/\${1%:*}/stat; } 2>/dev/null
  set -- \${1#*:} \${x##*) }
  case \${2:-X} in [ZX]) return 1; esac
  [ "\${21}" = $1 ]; }
S
for j in $k; do A $j && kill -15 \${j%:*} 2>/dev/null; done
printf t
read -r x
i=0 left=1
while [ $left ] && [ $i -lt 200 ]; do i=$((i+1)) left=
  S
  for j in $k; do A $j && left=1 && kill -9 \${j%:*} 2>/dev/null; done
done
[ $left ] && printf f || printf k`;

const SEND_SIGNAL = `kill -"$1" -"$2" 2>/dev/null`;

/** How long a signal may take to be sent, the engine's own time included. */
const CONTROL_TIMEOUT_MS = 10_000;

/** Acts on processes inside a sandbox, with the rights of the user they run as. */
export class ProcessControl {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Sends a signal to a process group. Returns whether there was one. */
  async signal(sandbox: LeasedSandbox, user: string, pid: number, signal: number): Promise<boolean> {
    const run = await this.#run(sandbox, user, [SEND_SIGNAL, "sh", String(signal), String(pid)]);
    try {
      return (await run.process.wait(AbortSignal.timeout(CONTROL_TIMEOUT_MS))) === 0;
    } finally {
      run.process.close();
    }
  }

  /**
   * Ends a job's whole process tree: SIGTERM, then SIGKILL when `graceMs` has
   * passed or `ended` resolves. Returns when nothing of it is left.
   * @throws `ENGINE_UNAVAILABLE` when it could not be done.
   */
  async killTree(
    sandbox: LeasedSandbox,
    user: string,
    pid: number,
    graceMs: number,
    ended: Promise<unknown>,
  ): Promise<void> {
    const run = await this.#run(sandbox, user, [KILL_TREE, "sh", String(pid)]);
    let timer: NodeJS.Timeout | undefined;
    try {
      const grace = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, graceMs);
      });
      await run.output("t");
      await Promise.race([ended, grace]);
      await run.process.writeStdin(Buffer.from("\n"));
      await run.output("k");
    } finally {
      clearTimeout(timer);
      run.process.close();
    }
  }

  /** Runs a script of /bin/sh; `output` resolves when it has printed the given text. */
  async #run(
    sandbox: LeasedSandbox,
    user: string,
    args: readonly string[],
  ): Promise<{ process: SpawnedProcess; output: (text: string) => Promise<void> }> {
    let said = "";
    let check = (): void => {};
    let over = false;
    const process = await this.#engine.spawn(
      sandbox.ref,
      { argv: ["/bin/sh", "-c", ...args], user, stdin: true },
      {
        data: (_stream, chunk) => {
          said = (said + chunk.toString("latin1")).slice(0, 4096);
          check();
        },
        end: () => {
          over = true;
          check();
        },
      },
      AbortSignal.timeout(CONTROL_TIMEOUT_MS),
    );
    const output = (text: string): Promise<void> =>
      new Promise((resolve, reject) => {
        const failed = (): void =>
          reject(
            new BerthError("ENGINE_UNAVAILABLE", "The process tree could not be ended.", {
              metadata: { said },
            }),
          );
        const timer = setTimeout(failed, CONTROL_TIMEOUT_MS);
        check = () => {
          if (!said.includes(text) && !over) return;
          clearTimeout(timer);
          if (said.includes(text)) resolve();
          else failed();
        };
        check();
      });
    return { process, output };
  }
}

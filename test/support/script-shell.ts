import { randomUUID } from "node:crypto";
import type { OutputStream } from "../../src/engine/port.ts";
import type { RawResult } from "./docker.ts";

/**
 * A shell in a sandbox that runs one script after another, each in a shell of its own. For looks and polls: a
 * `docker exec` takes ten times the processor time. Scripts must not leave anything behind that holds their output.
 */
export class ScriptShell {
  readonly #write: (data: Buffer) => unknown;
  readonly #read = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  #isBusy = false;
  #hasEnded = false;
  #changed = (): void => {};

  /** @param write writes to the stdin of a `/bin/sh`. */
  constructor(write: (data: Buffer) => unknown) {
    this.#write = write;
  }

  /** Takes output of the `/bin/sh`. */
  take(stream: OutputStream, chunk: Buffer): void {
    this.#read[stream] = Buffer.concat([this.#read[stream], chunk]);
    this.#changed();
  }

  /** The `/bin/sh` has ended. */
  end(): void {
    this.#hasEnded = true;
    this.#changed();
  }

  /** Whether it can run a script now. */
  get isFree(): boolean {
    return !this.#isBusy && !this.#hasEnded;
  }

  async run(script: string): Promise<RawResult> {
    if (!this.isFree) throw new Error("the shell runs another script, or has ended");
    this.#isBusy = true;
    this.#read.stdout = this.#read.stderr = Buffer.alloc(0);
    const mark = randomUUID();
    const quoted = `'${script.replaceAll("'", "'\\''")}'`;
    this.#write(Buffer.from(`/bin/sh -c ${quoted} </dev/null; echo "${mark} $?"; echo ${mark} >&2\n`));
    for (;;) {
      const { stdout, stderr } = this.#read;
      const [outEnd, errEnd] = [stdout.lastIndexOf(mark), stderr.lastIndexOf(mark)];
      if (outEnd >= 0 && errEnd >= 0 && stdout.at(-1) === 0x0a && stderr.at(-1) === 0x0a) {
        this.#isBusy = false;
        const exitCode = Number(stdout.subarray(outEnd + mark.length).toString());
        return { stdout: stdout.subarray(0, outEnd), stderr: stderr.subarray(0, errEnd), exitCode };
      }
      if (this.#hasEnded) throw new Error(`the shell ended during ${script}`);
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
  }
}

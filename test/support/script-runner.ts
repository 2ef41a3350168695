import { randomUUID } from "node:crypto";
import type { OutputStream } from "../../src/engine/port.ts";
import type { RawResult } from "./docker.ts";

/**
 * A program in a sandbox that runs one script after another, and marks the end of each in its output. Scripts must not
 * leave anything behind that holds their output.
 */
export abstract class ScriptRunner {
  readonly #write: (data: Buffer) => unknown;
  readonly #read = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  #isBusy = false;
  #hasEnded = false;
  #changed = (): void => {};

  /** @param write writes to the program's stdin. */
  constructor(write: (data: Buffer) => unknown) {
    this.#write = write;
  }

  /** Takes output of the program. */
  take(stream: OutputStream, chunk: Buffer): void {
    this.#read[stream] = Buffer.concat([this.#read[stream], chunk]);
    this.#changed();
  }

  /** The program has ended. */
  end(): void {
    this.#hasEnded = true;
    this.#changed();
  }

  /** Whether it can run a script now. */
  get isFree(): boolean {
    return !this.#isBusy && !this.#hasEnded;
  }

  /**
   * Has the program run a script.
   * @param request what the program reads. After the script it writes the mark and the exit code to stdout, and the
   * mark to stderr, each as a line.
   */
  protected async runMarked(script: string, request: (mark: string) => string): Promise<RawResult> {
    if (!this.isFree) throw new Error("it runs another script, or has ended");
    this.#isBusy = true;
    this.#read.stdout = this.#read.stderr = Buffer.alloc(0);
    const mark = randomUUID();
    this.#write(Buffer.from(request(mark)));
    for (;;) {
      const { stdout, stderr } = this.#read;
      const [outEnd, errEnd] = [stdout.lastIndexOf(mark), stderr.lastIndexOf(mark)];
      if (outEnd >= 0 && errEnd >= 0 && stdout.at(-1) === 0x0a && stderr.at(-1) === 0x0a) {
        this.#isBusy = false;
        const exitCode = Number(stdout.subarray(outEnd + mark.length).toString());
        return { stdout: stdout.subarray(0, outEnd), stderr: stderr.subarray(0, errEnd), exitCode };
      }
      if (this.#hasEnded) throw new Error(`it ended during ${script}`);
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
  }
}

import { Readable, Writable } from "node:stream";
import { BerthError } from "../../src/base/errors.ts";
import { runProgram } from "../../src/cli/program.ts";

/** How a run of the program in this process ended. */
export interface EndHere {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Options for a run of the program in this process. */
export interface HereOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Whether stdout and stderr are a terminal. */
  readonly isTTY?: boolean;
  /** Why stdout cannot be written, if so. */
  readonly stdoutError?: NodeJS.ErrnoException | undefined;
}

/** Runs a client command in this process, which takes a tenth of the time of a new process. */
export async function runHere(
  args: readonly string[],
  { env = {}, isTTY = false, stdoutError }: HereOptions = {},
): Promise<EndHere> {
  const written = { stdout: "", stderr: "" };
  const streamTo = (name: keyof typeof written) => {
    const stream = new Writable({
      write(chunk: Buffer, _encoding, done) {
        const error = name === "stdout" ? stdoutError : undefined;
        if (error === undefined) written[name] += chunk;
        done(error);
      },
    });
    return Object.assign(stream, { isTTY });
  };
  const code = await runProgram(args, {
    io: { stdin: Readable.from([]), stdout: streamTo("stdout"), stderr: streamTo("stderr"), env },
    service: {
      start: () => Promise.reject(new BerthError("UNSUPPORTED", "no service is started here")),
      diagnose: async () => [],
    },
    version: "0.0.0",
    exit: () => {},
  });
  return { code, ...written };
}

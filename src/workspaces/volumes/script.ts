import { abortError, BerthError, hasReason, throwIfAborted } from "../../base/errors.ts";
import { LastLines } from "../../base/last-lines.ts";
import type { OpenVolume, SpawnedProcess } from "../../engine/port.ts";
import { OutputQueue } from "../../files/running-script.ts";
import { EXIT, type ScriptFailure, scriptError } from "../../files/script.ts";
import { refusesOption } from "../../files/tar/restate.ts";

/** How many bytes of the end of stderr are kept. */
const MAX_STDERR = 64 * 1024;
/** Output limit of a script that is not streamed. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

interface VolumeScriptOptions {
  /** Whether it reads stdin. Default: no. */
  readonly stdin?: boolean;
  readonly signal: AbortSignal;
  /** Lines of stderr to drop. */
  readonly isNoise?: (line: string) => boolean;
}

/** A shell script that works on an open volume. Its output is read as it is written. */
export class VolumeScript {
  readonly #queue = new OutputQueue();
  #process: SpawnedProcess | undefined;
  readonly #stderr: LastLines;
  #end: Promise<ScriptFailure> | undefined;

  private constructor(isNoise: VolumeScriptOptions["isNoise"]) {
    this.#stderr = new LastLines(MAX_STDERR, isNoise);
  }

  /** Starts a script. The signal stops it. */
  static async start(
    volume: OpenVolume,
    text: string,
    { stdin = false, signal, isNoise }: VolumeScriptOptions,
  ): Promise<VolumeScript> {
    throwIfAborted(signal);
    const script = new VolumeScript(isNoise);
    const sink = {
      data: (stream: "stdout" | "stderr", chunk: Buffer): void => {
        if (stream === "stdout") script.#queue.push(chunk);
        else script.#stderr.add(chunk);
      },
      end: (error?: Error): void => script.#queue.end(error),
    };
    const process = await volume.spawn({ argv: ["/bin/sh", "-c", text], stdin }, sink, signal);
    script.#process = process;
    script.#queue.attach(process);
    const onAbort = (): void => {
      script.#queue.end(abortError(signal));
      process.close();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    script.#end = process
      .wait(signal)
      .then((code) => ({ code, stderr: script.#stderr.text }))
      .finally(() => signal.removeEventListener("abort", onAbort));
    script.#end.catch(() => {});
    if (signal.aborted) onAbort();
    return script;
  }

  /** The next bytes of stdout. Undefined at the end. */
  read(): Promise<Buffer | undefined> {
    return this.#queue.next();
  }

  /** Writes to stdin. Resolves with whether the script still reads. */
  async write(data: Uint8Array): Promise<boolean> {
    try {
      await this.#process?.writeStdin(data);
      return true;
    } catch (error) {
      if (hasReason(error, "PROCESS_STATE")) return false;
      throw error;
    }
  }

  /** Closes its stdin, reads the rest of its output, and returns how it ended. */
  async finish(): Promise<ScriptFailure & { readonly stdout: string }> {
    this.#process?.closeStdin();
    const chunks: Buffer[] = [];
    let bytes = 0;
    for (let chunk = await this.read(); chunk !== undefined; chunk = await this.read()) {
      bytes += chunk.length;
      if (bytes <= MAX_ANSWER_BYTES) chunks.push(chunk);
    }
    const { code } = await this.#ended();
    // All of stderr has arrived by now.
    return { code, stderr: this.#stderr.text, stdout: Buffer.concat(chunks).toString("latin1") };
  }

  #ended(): Promise<ScriptFailure> {
    return this.#end ?? Promise.reject(new Error("it was not started"));
  }

  /** Detaches. If it still runs, it ends with the volume's place. Idempotent. */
  close(): void {
    this.#queue.end(new BerthError("CANCELED", "The work on the volume has ended."));
    this.#process?.close();
  }
}

/** Runs a script to its end. */
export async function runOn(
  volume: OpenVolume,
  text: string,
  signal: AbortSignal,
): Promise<ScriptFailure & { readonly stdout: string }> {
  const script = await VolumeScript.start(volume, text, { signal });
  try {
    return await script.finish();
  } finally {
    script.close();
  }
}

const MAX_WORDS = 300;
const NO_SPACE = /: (no space left on device|disk quota exceeded|file too large)$/im;

/** The error for a script that failed on the files of a workspace. */
export function volumeFailure({ code, stderr }: ScriptFailure, done: "read" | "imported"): BerthError {
  if (NO_SPACE.test(stderr)) {
    return new BerthError(
      "NO_SPACE",
      "The workspace's volume is full. Delete files in a sandbox that mounts it, or clean it up with force.",
    );
  }
  if (code === EXIT.noTool) {
    const tool = stderr.slice(stderr.lastIndexOf("\n") + 1).slice(0, MAX_WORDS);
    return new BerthError(
      "UNSUPPORTED",
      `The server's default image has no ${tool}, which work on workspaces needs. Ask the operator for an image that has it.`,
      { metadata: { tool } },
    );
  }
  if (code === EXIT.kind) {
    const entry = stderr.slice(stderr.lastIndexOf("\n") + 1);
    return new BerthError(
      "FILE_KIND",
      `Nothing was imported: the archive's entry ${JSON.stringify(entry)} would replace something of another kind, or go through a link.`,
      { metadata: { entry } },
    );
  }
  const cause = scriptError({ path: "." }, { code, stderr });
  const words = stderr.trim().split("\n").at(-1)?.slice(0, MAX_WORDS) ?? "";
  return new BerthError("WORKSPACE_BROKEN", `Not all files of the workspace can be ${done}: ${words}`, {
    cause,
  });
}

/** @throws `UNSUPPORTED` if tar's messages say that it does not know an option, such as the one for sparse files. */
export function assertKnowsOptions(stderr: string, lack = "knows no holes in files"): void {
  if (!refusesOption(stderr)) return;
  throw new BerthError(
    "UNSUPPORTED",
    `The tar of the server's default image ${lack}. Ask the operator for an image with GNU tar.`,
    { metadata: { tool: "tar" } },
  );
}

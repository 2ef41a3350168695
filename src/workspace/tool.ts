import { type ChildProcessByStdio, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { abortError, throwIfAborted } from "../core/errors.ts";
import { PinnedDirectory } from "./pinned.ts";

/** What a tool of the host says at most that is kept. */
const MOST_STDERR = 64 * 1024;

/** What root keeps when it works in a workspace: rights to files that belong to others, and none beside. */
const KEPT_CAPABILITIES = ["dac_override", "dac_read_search", "fowner"];

/** A tool of the host to run in a directory. */
export interface ToolRun {
  readonly argv: readonly [string, ...string[]];
  /** Where it runs; what is there has to be a directory. */
  readonly directory: string;
  /** Rights to keep beside those to read and remove files, without `cap_`. */
  readonly capabilities?: readonly string[];
  readonly signal?: AbortSignal | undefined;
}

/** How a tool ended. */
export interface ToolEnd {
  /** Undefined: a signal ended it. */
  readonly code: number | undefined;
  readonly stderr: string;
}

/**
 * Runs the host's own tools in a directory that sandboxes write to. They are
 * those that know hostile trees: they go by open directories and not by paths,
 * follow no link and know no deepest level. They run with none of root's rights
 * but to others' files, and can gain none.
 */
export class Tools {
  readonly #prefix: (capabilities: readonly string[]) => string[];

  private constructor(prefix: (capabilities: readonly string[]) => string[]) {
    this.#prefix = prefix;
  }

  /** Finds out what the host offers to drop rights. */
  static find(): Tools {
    const asRoot = process.getuid?.() === 0;
    if (!asRoot || spawnSync("setpriv", ["--version"]).status !== 0) return new Tools(() => []);
    return new Tools((capabilities) => {
      const kept = [...KEPT_CAPABILITIES, ...capabilities].map((name) => `+${name}`).join(",");
      return ["setpriv", "--no-new-privs", "--inh-caps=-all", `--bounding-set=-all,${kept}`, "--"];
    });
  }

  /** Runs a tool to its end; returns what it wrote to stdout too. */
  async run(run: ToolRun): Promise<ToolEnd & { readonly stdout: string }> {
    await using directory = await PinnedDirectory.open(run.directory);
    const tool = this.#start(run, directory);
    try {
      const [stdout, end] = await Promise.all([text(tool.stdout), endOf(tool)]);
      throwIfAborted(run.signal);
      return { ...end, stdout };
    } catch (error) {
      tool.kill("SIGKILL");
      throw run.signal?.aborted ? abortError(run.signal) : error;
    }
  }

  /** Runs a tool and yields what it writes to stdout; returns how it ended. It ends when the reader leaves. */
  async *stream(run: ToolRun): AsyncGenerator<Buffer, ToolEnd> {
    await using directory = await PinnedDirectory.open(run.directory);
    const tool = this.#start(run, directory);
    const end = endOf(tool);
    end.catch(() => {});
    try {
      for await (const chunk of tool.stdout) yield chunk;
      const how = await end;
      throwIfAborted(run.signal);
      return how;
    } finally {
      tool.kill("SIGKILL");
      await end.catch(() => {});
    }
  }

  #start(
    { argv, capabilities = [], signal }: ToolRun,
    directory: PinnedDirectory,
  ): ChildProcessByStdio<null, Readable, Readable> {
    throwIfAborted(signal);
    const [command = "", ...args] = [...this.#prefix(capabilities), ...argv];
    const tool = spawn(command, args, {
      // Changed to before the tool begins, while the descriptor is still open in the child.
      cwd: directory.path,
      env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
      stdio: ["ignore", "pipe", "pipe"],
      ...(signal && { signal, killSignal: "SIGKILL" as const }),
    });
    return tool;
  }
}

async function endOf(tool: ChildProcessByStdio<null, Readable, Readable>): Promise<ToolEnd> {
  let stderr = "";
  tool.stderr.on("data", (chunk: Buffer) => {
    stderr = (stderr + chunk.toString("latin1")).slice(-MOST_STDERR);
  });
  const [code] = (await once(tool, "close")) as [number | null];
  return { code: code ?? undefined, stderr };
}

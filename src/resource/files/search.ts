import { posix } from "node:path";
import { BerthError } from "../../core/errors.ts";
import type { ResourceHost, ToolCall } from "../../core/ports/resource.ts";
import type { ProcessManager } from "../../process/process-manager.ts";

/** Names and lines of one search. */
const MOST_OUTPUT_BYTES = 16 * 1024 * 1024;
/** What a search shows. */
export const MOST_FOUND = 1000;
const LONGEST_LINE = 500;

/** A line that a pattern was found in. */
export interface FoundLine {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

/** Looks for files, and for lines in them, with the tools of the sandbox's image. */
export class Search {
  readonly #processes: ProcessManager;
  readonly #host: ResourceHost;

  constructor(processes: ProcessManager, host: ResourceHost) {
    this.#processes = processes;
    this.#host = host;
  }

  /** Files below a directory whose path from there matches a pattern; in byte order. */
  async glob(directory: string, pattern: string, call: ToolCall): Promise<string[]> {
    const output = await this.#run(
      ["find", directory, "-name", ".git", "-prune", "-o", "-type", "f", "-print0"],
      call,
    );
    return output
      .split("\0")
      .filter((path) => path !== "" && posix.matchesGlob(posix.relative(directory, path), pattern))
      .sort();
  }

  /** Lines of text files below a directory, or of one file, that an extended regular expression matches. */
  async grep(path: string, pattern: string, glob: string | undefined, call: ToolCall): Promise<FoundLine[]> {
    const argv = ["grep", "-rnIHEZ", "--exclude-dir=.git", "-e", pattern, "--", path];
    const output = await this.#run(argv, call);
    const found: FoundLine[] = [];
    for (const row of output.split("\n")) {
      const cut = row.indexOf("\0");
      const colon = row.indexOf(":", cut);
      const file = row.slice(0, cut);
      if (cut < 0 || colon < 0 || !matches(posix.relative(path, file), glob)) continue;
      found.push({
        path: file,
        line: Number(row.slice(cut + 1, colon)),
        text: row.slice(colon + 1, colon + 1 + LONGEST_LINE),
      });
    }
    return found;
  }

  async #run(args: readonly string[], call: ToolCall): Promise<string> {
    const { stdout, stderr, status } = await this.#processes.run(
      {
        sandbox: this.#host.name,
        command: { kind: "argv", args },
        env: { LC_ALL: "C.UTF-8" },
        workingDir: undefined,
        user: undefined,
        timeoutMs: call.timeoutMs,
        terminal: undefined,
        stdin: new Uint8Array(),
        keepStdinOpen: false,
        onDisconnect: "KILL",
        disconnectGraceMs: 0,
        outputLimitBytes: undefined,
        runId: "",
        requestId: "",
        fingerprint: "",
      },
      MOST_OUTPUT_BYTES,
      AbortSignal.any([call.signal, call.timeout]),
    );
    // Both tools say 1 where something could not be read, or nothing was found.
    const complaint = stderr.result().data.toString().trim();
    if (status.exitCode > 1) {
      throw new BerthError(
        "UNSUPPORTED",
        `${args[0]} failed (exit code ${status.exitCode}). ${complaint}`.trim(),
      );
    }
    const { data, gap } = stdout.result();
    // The tail behind a gap begins in the middle of a name.
    return data.toString("utf8", 0, gap?.from ?? data.length);
  }
}

/** A pattern without a directory is one for names, as tools have it. */
function matches(path: string, glob: string | undefined): boolean {
  if (glob === undefined) return true;
  return posix.matchesGlob(glob.includes("/") ? path : posix.basename(path), glob);
}

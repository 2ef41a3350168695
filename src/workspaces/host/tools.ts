import { type ChildProcess, type ChildProcessByStdio, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { abortError, BerthError, throwIfAborted } from "../../base/errors.ts";
import { LastLines } from "../../base/last-lines.ts";
import { codeOf, tooManyFiles } from "../../base/system-errors.ts";
import { PinnedDirectory } from "./pinned.ts";

/** How many bytes of the end of a tool's stderr are kept. */
const MAX_STDERR = 64 * 1024;

/**
 * How much memory a tool gets. GNU tar keeps the whole path of each directory that it is in, and of each file with several
 * links: of a sandbox's tree of a few MB that can be gigabytes.
 */
const MAX_MEMORY_MIB = 512;

/** Runs a command line with that limit, or a lower one that the service has itself. */
const LIMITED = ["sh", "-c", `ulimit -v ${MAX_MEMORY_MIB * 1024} 2>/dev/null; exec "$@"`, "sh"] as const;

/** The capabilities that tools keep: access to files whatever their modes, and nothing else. */
const KEPT_CAPABILITIES = ["dac_override", "dac_read_search", "fowner"];

/** The descriptor of the directory, for tools that enter it themselves. */
const DIRECTORY_FD = 3;

/** A run of one of the host's tools in a directory. */
interface ToolRun {
  readonly argv: readonly [string, ...string[]];
  readonly directory: string;
  /** Capabilities to keep besides those to read and remove files, without `cap_`. */
  readonly capabilities?: readonly string[];
  readonly signal?: AbortSignal | undefined;
  /** Lines of stderr to drop. */
  readonly isNoise?: (line: string) => boolean;
}

/** How a tool ended. */
export interface ToolEnd {
  /** Undefined: it was ended by a signal. */
  readonly code: number | undefined;
  readonly stderr: string;
}

/** How tools start. */
interface Start {
  /** The command line before the tool's own arguments. */
  readonly prefix: (capabilities: readonly string[]) => readonly string[];
  /** Whether the prefix enters the directory, which is then {@link DIRECTORY_FD}. */
  readonly enters: boolean;
}

/** What starting a program fails with that this host does not have. */
const MISSING = new Set(["ENOENT", "EACCES"]);

const PLAIN: Start = { prefix: () => [], enters: false };

/** Ends tools when the service is killed: two tools connected by a pipe would not notice. */
const ENDS_WITH_US = ["--pdeathsig", "KILL"];

/** For root: drops all other capabilities. */
const asRoot = (options: readonly string[]): Start => ({
  prefix: (more) => {
    const kept = only([...KEPT_CAPABILITIES, ...more]);
    return ["setpriv", ...options, "--no-new-privs", "--inh-caps=-all", `--bounding-set=${kept}`, "--"];
  },
  enters: false,
});

/**
 * For other users: a user namespace gives them these capabilities over their own files, which a sandbox may have
 * closed.
 */
const asUser = (options: readonly string[]): Start => ({
  prefix: () => {
    const kept = only(KEPT_CAPABILITIES);
    const enter = `--wd=/proc/self/fd/${DIRECTORY_FD}`;
    return [
      ...["unshare", "--user", "--map-current-user", "--keep-caps", enter, "--", "setpriv", ...options],
      ...["--no-new-privs", `--inh-caps=${kept}`, `--ambient-caps=${kept}`, `--bounding-set=${kept}`, "--"],
    ];
  },
  enters: true,
});

/**
 * Runs the host's tools in a directory that sandboxes write to. These tools can handle hostile trees: they work on open
 * directories instead of paths, follow no links, and have no limit on depth. They have no capabilities except over
 * files, and can gain none.
 */
export class Tools {
  readonly #how: Start;

  private constructor(how: Start) {
    this.#how = how;
  }

  /**
   * Finds out how capabilities can be given and dropped on this host.
   * @throws why that could not be tried, for instance `TOO_MANY_OPERATIONS`
   */
  static find(): Tools {
    const how = process.getuid?.() === 0 ? asRoot : asUser;
    const directory = openSync("/", "r");
    try {
      // A setpriv before util-linux 2.33 knows capabilities but not --pdeathsig.
      for (const start of [how(ENDS_WITH_US), how([])]) {
        const [command = "", ...args] = start.prefix([]);
        const { status, error } = spawnSync(command, [...args, "true"], {
          stdio: ["ignore", "ignore", "ignore", directory],
        });
        if (status === 0) return new Tools(start);
        // A failure that may be over soon is no reason to run tools with all rights.
        if (error !== undefined && !MISSING.has(codeOf(error) ?? "")) throw tooManyFiles(error) ?? error;
      }
      return new Tools(PLAIN);
    } finally {
      closeSync(directory);
    }
  }

  /** Runs a tool to its end. Also returns its stdout. */
  async run(run: ToolRun): Promise<ToolEnd & { readonly stdout: string }> {
    const { tool, ended } = await this.#start(run);
    try {
      const [stdout, end] = await Promise.all([text(tool.stdout), ended]);
      throwIfAborted(run.signal);
      return { ...end, stdout };
    } catch (error) {
      tool.kill("SIGKILL");
      throw run.signal?.aborted ? abortError(run.signal) : error;
    }
  }

  /** Runs a tool and yields its stdout. Returns how it ended. The tool is ended if the reader leaves. */
  async *stream(run: ToolRun): AsyncGenerator<Buffer, ToolEnd> {
    const { tool, ended } = await this.#start(run);
    try {
      for await (const chunk of tool.stdout) yield chunk;
      const end = await ended;
      throwIfAborted(run.signal);
      return end;
    } finally {
      tool.kill("SIGKILL");
      await ended.catch(() => {});
    }
  }

  /**
   * Runs two tools to their ends, with the first one's stdout as the second one's stdin. The data does not pass through
   * here.
   */
  async pipe(from: ToolRun, to: ToolRun): Promise<[ToolEnd, ToolEnd]> {
    const reader = await this.#start(to, { stdin: "pipe", stdout: "ignore" });
    try {
      const { stdin } = reader;
      if (stdin === null) throw new Error("a tool has no stdin");
      // If the reader has ended, its own messages say why.
      stdin.on("error", () => {});
      const writer = await this.#start(from, { stdin: "ignore", stdout: stdin });
      try {
        // Only the writer may hold it, so that the reader gets EOF when the writer ends.
        stdin.destroy();
        const ends = await Promise.all([writer.ended, reader.ended]);
        throwIfAborted(from.signal);
        return ends;
      } finally {
        writer.tool.kill("SIGKILL");
      }
    } catch (error) {
      throw from.signal?.aborted ? abortError(from.signal) : error;
    } finally {
      reader.tool.kill("SIGKILL");
      await reader.ended.catch(() => {});
    }
  }

  async #start(
    { argv, capabilities = [], directory, signal, isNoise }: ToolRun,
    { stdin, stdout }: ToolStreams = { stdin: "ignore", stdout: "pipe" },
  ): Promise<StartedTool> {
    throwIfAborted(signal);
    const { prefix, enters } = this.#how;
    const [command, ...args] = [...LIMITED, ...prefix(capabilities), ...argv];
    const pinned = await PinnedDirectory.open(directory);
    try {
      const tool = spawn(command, args, {
        cwd: enters ? "/" : pinned.path,
        env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
        stdio: [stdin, stdout, "pipe", ...(enters ? [pinned.fd] : [])],
        ...(signal && { signal, killSignal: "SIGKILL" as const }),
      });
      const ended = endOf(tool, isNoise);
      ended.catch(() => {});
      // It could not be started, and has no streams.
      if (tool.pid === undefined) await ended;
      return { tool: tool as ChildProcessByStdio<null, Readable, Readable>, stdin: tool.stdin, ended };
    } finally {
      // The child has inherited it: a stream that is never read to the end must not hold it open here.
      pinned.release();
    }
  }
}

/** Where a tool's streams lead. */
interface ToolStreams {
  readonly stdin: "ignore" | "pipe";
  readonly stdout: "ignore" | "pipe" | Writable;
}

/** A running tool, and its end. */
interface StartedTool {
  /** Its stdout can only be read if it is piped to here. */
  readonly tool: ChildProcessByStdio<null, Readable, Readable>;
  readonly stdin: Writable | null;
  readonly ended: Promise<ToolEnd>;
}

/** A list of capabilities for `setpriv`. */
function only(names: readonly string[]): string {
  return ["-all", ...names.map((name) => `+${name}`)].join(",");
}

async function endOf(tool: ChildProcess, isNoise: ToolRun["isNoise"]): Promise<ToolEnd> {
  const stderr = new LastLines(MAX_STDERR, isNoise);
  tool.stderr?.on("data", (chunk: Buffer) => stderr.add(chunk));
  const [code] = (await once(tool, "close")) as [number | null];
  return { code: code ?? undefined, stderr: stderr.text };
}

/** Messages of tools about files that they may not touch. */
const FORBIDDEN =
  /^\w+: (.*(?:Permission denied|Operation not permitted|Device or resource busy|different device))$/m;
const MAX_COMPLAINT = 300;

/** A tool's message about the first file that it may not touch. Undefined: there is none. */
export function forbidden({ stderr }: Pick<ToolEnd, "stderr">): string | undefined {
  return FORBIDDEN.exec(stderr)?.[1]?.slice(0, MAX_COMPLAINT);
}

/** The message of a tool that has used up its memory. */
const OUT_OF_MEMORY = /: (memory exhausted|cannot allocate memory)$/im;

/** The error for a tool that failed on the files of a workspace. */
export function toolFailure(tool: string, end: ToolEnd, done: "deleted" | "read"): Error {
  const cause = new Error(`${tool} ended with ${end.code}: ${end.stderr.slice(-1000)}`);
  if (OUT_OF_MEMORY.test(end.stderr)) {
    return new BerthError(
      "UNSUPPORTED",
      `Not all files of the workspace can be ${done}: the server's ${tool} gets ${MAX_MEMORY_MIB} MiB of memory, and the workspace's directories are too deep, or its files too many, for that. Move its directories up, or split it.`,
      { cause },
    );
  }
  const complaint = forbidden(end);
  if (complaint === undefined) return cause;
  return new BerthError(
    "WORKSPACE_BROKEN",
    `Not all files of the workspace can be ${done} (${complaint}): they belong to another user than the server's, or something is mounted on them. Ask the operator to fix this, or to run the server as root.`,
    { cause },
  );
}

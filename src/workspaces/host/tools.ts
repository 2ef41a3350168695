import { type ChildProcess, type ChildProcessByStdio, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { abortError, BerthError, throwIfAborted } from "../../base/errors.ts";
import { LastLines } from "../../base/last-lines.ts";
import { PinnedDirectory } from "./pinned.ts";

/** How much of a tool's stderr is kept: its last lines. */
const MAX_STDERR = 64 * 1024;

/** The rights of root that tools keep: those to files whatever their modes, and no others. */
const KEPT_CAPABILITIES = ["dac_override", "dac_read_search", "fowner"];

/** The descriptor of its directory, for a tool that enters it by itself. */
const DIRECTORY_FD = 3;

/** A tool of the host to run in a directory. */
export interface ToolRun {
  readonly argv: readonly [string, ...string[]];
  /** Where it runs. */
  readonly directory: string;
  /** Rights to keep beside those to read and remove files, without `cap_`. */
  readonly capabilities?: readonly string[];
  readonly signal?: AbortSignal | undefined;
  /** Lines of its stderr that are not kept. */
  readonly isNoise?: (line: string) => boolean;
}

/** How a tool ended. */
export interface ToolEnd {
  /** Undefined: a signal ended it. */
  readonly code: number | undefined;
  readonly stderr: string;
}

/** How tools are started. */
interface Start {
  /** What comes before their own arguments. */
  readonly prefix: (capabilities: readonly string[]) => readonly string[];
  /** Whether the prefix enters the directory, which is {@link DIRECTORY_FD} then. */
  readonly enters: boolean;
}

const PLAIN: Start = { prefix: () => [], enters: false };

/** A service that is killed leaves no tool at work: two that are joined would not notice. */
const ENDS_WITH_US = ["--pdeathsig", "KILL"];

/** For root: without its other rights. */
const asRoot = (options: readonly string[]): Start => ({
  prefix: (more) => {
    const kept = only([...KEPT_CAPABILITIES, ...more]);
    return ["setpriv", ...options, "--no-new-privs", "--inh-caps=-all", `--bounding-set=${kept}`, "--"];
  },
  enters: false,
});

/** For other users: a user namespace gives those rights to their own files, which a sandbox may have closed. */
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
 * Runs the host's own tools in a directory that sandboxes write to. They are
 * those that know hostile trees: they go by open directories and not by paths,
 * follow no link and know no deepest level. They run with no rights but to
 * files, and can gain none.
 */
export class Tools {
  readonly #how: Start;

  private constructor(how: Start) {
    this.#how = how;
  }

  /** Finds out how rights can be given and dropped on this host. */
  static find(): Tools {
    const how = process.getuid?.() === 0 ? asRoot : asUser;
    const directory = openSync("/", "r");
    try {
      // A setpriv before util-linux 2.33 knows the rights, and nothing of a parent's death.
      for (const start of [how(ENDS_WITH_US), how([])]) {
        const [command = "", ...args] = start.prefix([]);
        const { status } = spawnSync(command, [...args, "true"], {
          stdio: ["ignore", "ignore", "ignore", directory],
        });
        if (status === 0) return new Tools(start);
      }
      return new Tools(PLAIN);
    } finally {
      closeSync(directory);
    }
  }

  /** Runs a tool to its end; returns what it wrote to stdout too. */
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

  /** Runs a tool and yields what it writes to stdout; returns how it ended. It ends when the reader leaves. */
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

  /** Runs two tools to their ends, where the second reads what the first writes; none of it passes through here. */
  async pipe(from: ToolRun, to: ToolRun): Promise<[ToolEnd, ToolEnd]> {
    const reader = await this.#start(to, { stdin: "pipe", stdout: "ignore" });
    try {
      const { stdin } = reader;
      if (stdin === null) throw new Error("a tool has no stdin");
      // Where the reader has ended, its own words say why.
      stdin.on("error", () => {});
      const writer = await this.#start(from, { stdin: "ignore", stdout: stdin });
      try {
        // The writer has it: its end is the reader's end of input.
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
    const [command = "", ...args] = [...prefix(capabilities), ...argv];
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
      return { tool: tool as ChildProcessByStdio<null, Readable, Readable>, stdin: tool.stdin, ended };
    } finally {
      // The child has it: a reader that never returns keeps nothing open here.
      pinned.release();
    }
  }
}

/** Where the streams of a tool lead. */
interface ToolStreams {
  readonly stdin: "ignore" | "pipe";
  readonly stdout: "ignore" | "pipe" | Writable;
}

/** A tool that runs, and its end. */
interface StartedTool {
  /** Its stdout is read only where it leads here. */
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

/** The errors of tools about files that they may not touch. */
const FORBIDDEN =
  /^\w+: (.*(?:Permission denied|Operation not permitted|Device or resource busy|different device))$/m;
const MAX_COMPLAINT = 300;

/** A tool's error about the first file that it may not touch; undefined: there is none. */
export function forbidden({ stderr }: Pick<ToolEnd, "stderr">): string | undefined {
  return FORBIDDEN.exec(stderr)?.[1]?.slice(0, MAX_COMPLAINT);
}

/** The error for a tool that failed on the files of a workspace. */
export function toolFailure(tool: string, end: ToolEnd, done: "deleted" | "read"): Error {
  const cause = new Error(`${tool} ended with ${end.code}: ${end.stderr.slice(-1000)}`);
  const complaint = forbidden(end);
  if (complaint === undefined) return cause;
  return new BerthError(
    "WORKSPACE_BROKEN",
    `Not all files of the workspace can be ${done} (${complaint}): they belong to another user than the server's, or something is mounted on them. Ask the operator to fix this, or to run the server as root.`,
    { cause },
  );
}

import { posix } from "node:path";
import { z } from "zod";
import { type ByteString, fromText, toText } from "../../../base/byte-string.ts";
import { BerthError, type ErrorReason, invalidArgument } from "../../../base/errors.ts";
import { findAll, replaceAt } from "../../../base/replace-bytes.ts";
import type { FileManager, PathRequest } from "../../../files/manager.ts";
import { isWithin } from "../../../files/path.ts";
import type { ProcessManager } from "../../../processes/manager.ts";
import {
  defineTool,
  type SessionBackend,
  type SessionHost,
  type SessionType,
  succeeded,
  TOOL_CODE,
  type ToolCall,
  type ToolResult,
} from "../../backend.ts";
import { baseConfig, withoutNul } from "../common.ts";
import type { HeldMemory } from "../held-memory.ts";
import { countLines, numbered, readLines } from "./read-lines.ts";
import { Search, type SearchPlace } from "./search.ts";

const filePath = z.string().describe("The file: absolute, or relative to the session's workspace.");
const directory = z.string().describe("Where to look. Default: the session's workspace.").optional();
/** The characters of a pattern of grep: the time that GNU grep takes grows with their square. */
const MAX_GREP_PATTERN = 10_000;

const read = defineTool({
  name: "read",
  description:
    'Reads lines of a text file, each preceded by its number, as in "   1→alpha". Returns content, start_line, line_count and truncated (whether the file has more).',
  params: z.strictObject({
    file_path: filePath,
    offset: z.int().min(1).default(1).describe("The first line, from 1."),
    limit: z.int().min(1).max(100_000).default(2000).describe("The maximum number of lines."),
    numbered: z
      .boolean()
      .default(true)
      .describe("Whether to number the lines; false: as they are in the file."),
  }),
  run: (files: Files, params, call) => files.read(params, call),
});

const write = defineTool({
  name: "write",
  description:
    "Replaces the content of a file. Creates the file and its directories if they do not exist. Returns bytes_written and line_count.",
  params: z.strictObject({ file_path: filePath, content: z.string().describe("The new content.") }),
  run: (files: Files, params, call) => files.write(params, call),
});

const edit = defineTool({
  name: "edit",
  description:
    "Replaces text in a file. The text must occur exactly once, unless replace_all is set. Returns replacements.",
  params: z.strictObject({
    file_path: filePath,
    old_string: z
      .string()
      .min(1)
      .describe("The text to replace, exactly, without the numbers that read shows."),
    new_string: z.string().describe("What to put in its place."),
    replace_all: z.boolean().default(false).describe("Whether to replace every occurrence."),
  }),
  run: (files: Files, params, call) => files.edit(params, call),
});

const glob = defineTool({
  name: "glob",
  description:
    'Lists files whose path below a directory matches a pattern such as "**/*.py" or "src/*.{ts,js}". Returns files, in byte order, and truncated.',
  params: z.strictObject({ pattern: z.string().min(1), path: directory }),
  run: (files: Files, params, call) => files.glob(params, call),
});

const grep = defineTool({
  name: "grep",
  description:
    "Looks for lines that match a regular expression: an extended one (POSIX), or Perl's (\\d, (?:…), lookahead) if the sandbox's grep supports that. Returns matches ({path, line, text}) and truncated.",
  params: z.strictObject({
    pattern: z.string().min(1).max(MAX_GREP_PATTERN),
    path: directory,
    glob: z.string().min(1).describe('Only files that match, for instance "*.py".').optional(),
  }),
  run: (files: Files, params, call) => {
    withoutNul("params.pattern", params.pattern);
    return files.grep(params, call);
  },
});

/** The type `files`: the files in a session's workspace. */
export function filesType(files: FileManager, processes: ProcessManager, memory: HeldMemory): SessionType {
  return {
    name: "files",
    description: "The files of a workspace: read, write, edit, find and search them.",
    config: baseConfig,
    tools: [read, write, edit, glob, grep],
    sandbox: {},
    initialize: async (host) => new Files(files, processes, host, memory),
  };
}

/** The size limit of a message. */
const MAX_EDITED_BYTES = 8 * 1024 * 1024;

const MAX_REPLACEMENTS = 100_000;

/** Errors that are about a file, not about the call. */
const OWN_FAILURES: ReadonlySet<ErrorReason> = new Set([
  "FILE_NOT_FOUND",
  "FILE_EXISTS",
  "FILE_KIND",
  "FILE_PERMISSION",
  "DIRECTORY_NOT_EMPTY",
  "NO_SPACE",
  "UNSUPPORTED",
]);

class Files implements SessionBackend {
  readonly alive = true;
  readonly #files: FileManager;
  readonly #search: Search;
  readonly #workspace: Workspace;

  constructor(files: FileManager, processes: ProcessManager, host: SessionHost, memory: HeldMemory) {
    this.#files = files;
    this.#search = new Search(processes, host, (path) => files.isTemporary(path), memory);
    this.#workspace = new Workspace(files, host);
  }

  read(
    params: {
      readonly file_path: string;
      readonly offset: number;
      readonly limit: number;
      readonly numbered: boolean;
    },
    call: ToolCall,
  ): Promise<ToolResult> {
    return this.#on("file_path", params.file_path, call, async (file, signal) => {
      const { offset: first, limit } = params;
      const lines = await readLines(this.#files, file, { first, limit }, signal);
      if (lines === undefined) return failed("The file is not text. Read it with FileService.");
      const { text, count, more } = lines;
      const content = params.numbered ? await numbered(text, first) : text;
      return succeeded({ content, start_line: first, line_count: count, truncated: more });
    });
  }

  write(
    params: { readonly file_path: string; readonly content: string },
    call: ToolCall,
  ): Promise<ToolResult> {
    return this.#on("file_path", params.file_path, call, async (file, signal) => {
      const data = Buffer.from(params.content);
      await this.#write(file, data, signal);
      return succeeded({
        file_path: toText(file.path.bytes),
        bytes_written: data.length,
        line_count: countLines(params.content),
      });
    });
  }

  edit(
    params: {
      readonly file_path: string;
      readonly old_string: string;
      readonly new_string: string;
      readonly replace_all: boolean;
    },
    call: ToolCall,
  ): Promise<ToolResult> {
    return this.#on("file_path", params.file_path, call, async (file, signal) => {
      const part = await this.#files.read({ ...file, offset: 0, limit: MAX_EDITED_BYTES }, signal);
      if (!part.endOfFile)
        return failed(`The file has more than ${MAX_EDITED_BYTES} bytes, too many to edit.`);
      // Works on bytes, so that parts that are not text stay unchanged.
      const before = Buffer.from(part.data);
      const old = Buffer.from(params.old_string);
      const replacement = Buffer.from(params.new_string);
      const places = await findAll(before, old, MAX_REPLACEMENTS, signal);
      const count = places.length;
      if (count === 0) return failed("old_string is not in the file. Give it exactly, white space included.");
      const times = count > MAX_REPLACEMENTS ? `more than ${MAX_REPLACEMENTS}` : count;
      if (count > (params.replace_all ? MAX_REPLACEMENTS : 1)) {
        return failed(
          `old_string is in the file ${times} times. Give more of its surroundings${params.replace_all ? "" : ", or set replace_all"}.`,
        );
      }
      if (before.length + count * (replacement.length - old.length) > MAX_EDITED_BYTES) {
        return failed(`The file would have more than ${MAX_EDITED_BYTES} bytes, too many to edit.`);
      }
      await this.#write(file, await replaceAt(before, places, old.length, replacement, signal), signal);
      return succeeded({ file_path: toText(file.path.bytes), replacements: count });
    });
  }

  #place({ path }: PathRequest, named = "."): SearchPlace {
    return { path: toText(path.bytes), named: posix.resolve(this.#workspace.root, named) };
  }

  glob(
    params: { readonly pattern: string; readonly path?: string | undefined },
    call: ToolCall,
  ): Promise<ToolResult> {
    return this.#on("path", params.path, call, async (directory, signal) => {
      await this.#assertThere(directory, signal);
      const searched = this.#place(directory, params.path);
      const { found, truncated } = await this.#search.glob(searched, params.pattern, call);
      return succeeded({ files: found, truncated });
    });
  }

  grep(
    params: {
      readonly pattern: string;
      readonly path?: string | undefined;
      readonly glob?: string | undefined;
    },
    call: ToolCall,
  ): Promise<ToolResult> {
    return this.#on("path", params.path, call, async (place, signal) => {
      await this.#assertThere(place, signal);
      const searched = this.#place(place, params.path);
      const { found, truncated } = await this.#search.grep(searched, params.pattern, params.glob, call);
      return succeeded({ matches: found, truncated });
    });
  }

  async cleanup(): Promise<void> {}

  /** Searches ignore paths that vanish, so they cannot report a missing one. @throws `FILE_NOT_FOUND`. */
  async #assertThere(place: PathRequest, signal: AbortSignal): Promise<void> {
    await this.#files.stat({ ...place, followLink: false }, signal);
  }

  #write(file: PathRequest, data: Uint8Array, signal: AbortSignal) {
    const options = { mode: undefined, createParents: true, append: false };
    return this.#files.write({ ...file, data, ...options }, signal);
  }

  /** Runs an operation on a path of the workspace. Problems with the file become failures of the tool. */
  async #on(
    param: string,
    path: string | undefined,
    call: ToolCall,
    act: (path: PathRequest, signal: AbortSignal) => Promise<ToolResult>,
  ): Promise<ToolResult> {
    const signal = AbortSignal.any([call.signal, call.timeout]);
    try {
      return await act(await this.#workspace.file(param, path ?? this.#workspace.root, signal), signal);
    } catch (error) {
      if (error instanceof BerthError && OWN_FAILURES.has(error.reason)) return failed(error.message);
      throw error;
    }
  }
}

function failed(message: string): ToolResult {
  return { code: TOOL_CODE.failed, message, data: null, attachments: [], programFailed: false };
}

/**
 * The directory that a session's file tools are confined to: the sandbox's working directory. Refuses paths that leave
 * it, by name or through a symbolic link. Code in the sandbox could change a link in between, but it can read the file
 * anyway.
 */
class Workspace {
  readonly root: string;
  readonly #files: FileManager;
  readonly #host: SessionHost;

  constructor(files: FileManager, host: SessionHost) {
    this.#files = files;
    this.#host = host;
    this.root = host.sandbox.spec.workingDir;
  }

  /**
   * The file that a param names, with every link resolved.
   * @throws `INVALID_ARGUMENT` if it lies outside.
   */
  async file(param: string, path: string, signal: AbortSignal): Promise<PathRequest> {
    const field = `params.${param}`;
    if (path.includes("\0")) throw invalidArgument(field, "must not contain a NUL byte.");
    if (path === "") throw invalidArgument(field, "is empty.");
    const root = await this.#realPath("root", this.root, signal);
    const named = posix.resolve(this.root, path);
    const real = await this.#realPath(field, named, signal);
    if (!isWithin(real, root)) {
      throw invalidArgument(field, `${JSON.stringify(path)} leaves the session's workspace, ${this.root}.`);
    }
    return this.#request(field, real);
  }

  #realPath(field: string, path: string, signal: AbortSignal): Promise<ByteString> {
    return this.#files.realPath(this.#request(field, fromText(path)), signal);
  }

  #request(field: string, bytes: ByteString): PathRequest {
    return { sandbox: this.#host.name, user: undefined, path: { field, bytes } };
  }
}

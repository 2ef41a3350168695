import { posix } from "node:path";
import { BerthError, invalidArgument, throwIfAborted } from "../../../base/errors.ts";
import { withoutVanished } from "../../../files/script.ts";
import { HeadAndTail } from "../../../processes/head-and-tail.ts";
import { OWN_COMMAND, type ProcessManager } from "../../../processes/manager.ts";
import type { ExitStatus } from "../../../processes/record.ts";
import type { SessionHost, ToolCall } from "../../backend.ts";
import type { HeldMemory, Hold } from "../held-memory.ts";
import { Pace } from "../pace.ts";
import { Glob } from "./glob.ts";
import { syntaxOf } from "./perl-syntax.ts";

/** How much of a tool's stderr is read. */
const MAX_COMPLAINT_BYTES = 64 * 1024;
/** How many results a search returns. */
const MAX_FOUND = 1000;
/** How many names, or lines with the pattern, a search looks at. */
const MAX_LOOKED = 1_000_000;
const MAX_LINE = 500;
/** The longest path that a program can open. */
const MAX_PATH_BYTES = 4096;
/** How much of a name or line is read: more than a path, and more than is shown of a line. */
const MAX_PART_BYTES = MAX_PATH_BYTES + 1;
const NUL = 0;
const NEWLINE = 0x0a;
/** The error of a grep without Perl's syntax, and of busybox's grep for most options. */
const NO_OPTION = /(invalid|unrecognized|unknown) option|not (supported|compiled)|perl-regexp/i;
const FORBIDDEN = /: permission denied$/i;

/** A line that matches the pattern. */
type FoundLine = { readonly path: string; readonly line: number; readonly text: string };

/** The results of a search. */
interface Found<T> {
  readonly found: T[];
  /** Whether there are more, or may be. */
  readonly truncated: boolean;
}

/** Where to search. */
export interface SearchPlace {
  /** With every link resolved. */
  readonly path: string;
  /** As the caller named it, which patterns may begin with. */
  readonly named: string;
}

/** Searches for files, and for lines in files, with the tools of the sandbox's image. */
export class Search {
  readonly #processes: ProcessManager;
  readonly #host: SessionHost;
  readonly #isHidden: (path: string) => boolean;
  readonly #hold: Hold;

  /**
   * @param isHidden returns whether searches skip a path
   * @param memory limits what patterns hold
   */
  constructor(
    processes: ProcessManager,
    host: SessionHost,
    isHidden: (path: string) => boolean,
    memory: HeldMemory,
  ) {
    this.#processes = processes;
    this.#host = host;
    this.#isHidden = isHidden;
    this.#hold = (drop, bytes) => memory.hold(host.sandbox.owner, drop, bytes);
  }

  /** Files below a directory whose relative path matches a pattern. Sorted by bytes. */
  async glob(place: SearchPlace, pattern: string, call: ToolCall): Promise<Found<string>> {
    using glob = new Glob("params.pattern", relativePattern("params.pattern", place, pattern), this.#hold);
    const directory = place.path;
    const args = ["find", directory, "-name", ".git", "-prune", "-o", "-type", "f", "-print0"];
    const pace = paceOf(call);
    const names = new Splitter([NUL]);
    let found: Buffer[] = [];
    for await (const chunk of this.#run(args, call)) {
      for (const name of names.of(chunk)) {
        await pace.next();
        const path = name.toString();
        if (name.length > MAX_PATH_BYTES || this.#isHidden(path)) continue;
        // A copy, because a view would keep the whole chunk.
        if (await glob.matches(relativeTo(directory, path), pace)) found.push(Buffer.from(name));
        // More results are neither shown nor counted, and sorting in small batches is fast.
        if (found.length > 2 * MAX_FOUND) found = found.sort(Buffer.compare).slice(0, MAX_FOUND + 1);
      }
      if (names.count > MAX_LOOKED) break;
    }
    return shown(found.sort(Buffer.compare).map(String), names.count > MAX_LOOKED);
  }

  /**
   * Lines that match a regular expression, in text files below a directory or in one file. The expression is an
   * extended one, or Perl's if it uses that syntax.
   * @throws `UNSUPPORTED` if the sandbox's grep does not understand it; `INVALID_ARGUMENT` if it has several lines.
   */
  async grep(
    place: SearchPlace,
    pattern: string,
    glob: string | undefined,
    call: ToolCall,
  ): Promise<Found<FoundLine>> {
    // grep would look for lines that match any of the pattern's lines.
    if (pattern.includes("\n")) {
      throw invalidArgument(
        "params.pattern",
        "holds a line break, but grep looks at one line at a time. Give a pattern for one line; a|b matches either.",
      );
    }
    using wanted = glob === undefined ? undefined : nameMatcher(place, glob, this.#hold);
    const { path } = place;
    const { perl, extended } = syntaxOf(pattern);
    if (perl !== undefined && extended !== undefined) throw mixed(perl, extended);
    const options = perl === undefined ? "-rnIHEZ" : "-rnIHPZ";
    // A pipe would be waited for.
    const args = ["grep", options, "--devices=skip", "--exclude-dir=.git", "-e", pattern, "--", path];
    const instead = (complaint: string): readonly string[] | undefined => {
      if (!NO_OPTION.test(complaint)) return undefined;
      if (perl !== undefined) throw noPerl(perl);
      return portableGrep(path, pattern);
    };
    const pace = paceOf(call);
    const parts = new Splitter([NUL, NEWLINE]);
    const found: FoundLine[] = [];
    let file = "";
    let isWanted = false;
    const isEnough = (): boolean => found.length > MAX_FOUND || parts.count > 2 * MAX_LOOKED;
    for await (const chunk of this.#run(args, call, instead)) {
      for (const part of parts.of(chunk)) {
        await pace.next();
        // A name, and then a line.
        if (parts.count % 2 === 1) {
          file = part.toString();
          isWanted = part.length <= MAX_PATH_BYTES && !this.#isHidden(file);
          isWanted &&= wanted === undefined || (await wanted.matches(file, pace));
        } else if (isWanted) found.push(lineOf(file, part));
        if (isEnough()) break;
      }
      if (isEnough()) break;
    }
    return shown(found, parts.count > 2 * MAX_LOOKED);
  }

  /**
   * What a tool writes. The tool waits for its reader, and ends with it.
   * @param instead what replaces a tool that failed for another reason than problems with files
   */
  async *#run(
    args: readonly string[],
    call: ToolCall,
    instead: (complaint: string) => readonly string[] | undefined = () => undefined,
  ): AsyncGenerator<Buffer> {
    const signal = AbortSignal.any([call.signal, call.timeout]);
    const stderr = new HeadAndTail(2 * MAX_COMPLAINT_BYTES);
    let status: ExitStatus | undefined;
    const events = this.#processes.exec(
      {
        ...OWN_COMMAND,
        sandbox: this.#host.name,
        command: { kind: "argv", args },
        env: { LC_ALL: "C.UTF-8" },
        timeoutMs: call.timeoutMs,
      },
      signal,
    );
    for await (const event of events) {
      if (event.type === "exited") status = event.status;
      else if (event.type === "gap")
        throw new BerthError("INTERNAL", `The output of ${args[0]} could not be kept.`);
      else if (event.type !== "output") continue;
      else if (event.stream === "stderr") stderr.append(event.data);
      else yield Buffer.from(event.data.buffer, event.data.byteOffset, event.data.length);
    }
    throwIfAborted(signal);
    const { exitCode = -1, message = "" } = status ?? {};
    // find exits with 1 if it could not read something. grep exits with 1 if it found nothing, and with 2 if it could
    // not read some files.
    const complaint = complaintOf(stderr);
    if (exitCode === 0 || exitCode === 1 || isOfFiles(complaint)) return;
    const replacement = instead(complaint);
    if (replacement !== undefined) return yield* this.#run(replacement, call);
    const why = exitCode === -1 ? `: ${message}` : ` (exit code ${exitCode}). ${complaint}`;
    throw new BerthError("UNSUPPORTED", `${args[0]} failed${why}`.trim());
  }
}

/** At most as many results as are shown. */
function shown<T>(found: readonly T[], isCut: boolean): Found<T> {
  return { found: found.slice(0, MAX_FOUND), truncated: isCut || found.length > MAX_FOUND };
}

/** A line as `grep -n` prints it. */
function lineOf(path: string, line: Buffer): FoundLine {
  const colon = line.indexOf(":");
  const text = line.toString("utf8", colon + 1, colon + 1 + 4 * MAX_LINE).slice(0, MAX_LINE);
  return { path, line: Number(line.toString("utf8", 0, colon)), text };
}

/** The first lines of a tool's stderr, without one that is cut. */
function complaintOf(stderr: HeadAndTail): string {
  const { data, gap } = stderr.result();
  const end = gap === undefined ? data.length : data.lastIndexOf(NEWLINE, gap.from - 1);
  return data.toString("utf8", 0, end).trim();
}

/** Whether a tool only complained about files that vanished or that it may not read. */
function isOfFiles(complaint: string): boolean {
  const rest = withoutVanished(complaint).split("\n");
  return complaint !== "" && rest.every((line) => line === "" || FORBIDDEN.test(line));
}

function noPerl(construct: string): BerthError {
  return new BerthError(
    "UNSUPPORTED",
    `The pattern uses Perl's syntax (${construct}), which the grep of the sandbox's image does not know. Write it as an extended regular expression, for instance [0-9] for \\d and (a|b) for (?:a|b).`,
  );
}

function mixed(perl: string, extended: string): BerthError {
  return new BerthError(
    "UNSUPPORTED",
    `The pattern mixes Perl's syntax (${perl}) with ${extended}, which Perl's does not have. Write \\b for the edge of a word.`,
  );
}

/** Matches files below a path with a glob. A glob without a slash matches names in any directory, as in other tools. */
function nameMatcher(place: SearchPlace, pattern: string, hold: Hold) {
  const glob = new Glob("params.glob", relativePattern("params.glob", place, pattern), hold);
  const ofName = !pattern.includes("/");
  return {
    matches: (file: string, pace: Pace): Promise<boolean> =>
      // Lines may be looked for in a single file.
      glob.matches(ofName || file === place.path ? posix.basename(file) : relativeTo(place.path, file), pace),
    [Symbol.dispose]: () => glob[Symbol.dispose](),
  };
}

/**
 * A glob for paths below a directory, from one that may start with `./` or with the directory itself. One that ends in a
 * slash names a directory, and matches everything below it.
 * @throws `INVALID_ARGUMENT` if it is for other directories: it would silently find nothing.
 */
function relativePattern(field: string, { path, named }: SearchPlace, pattern: string): string {
  // a//b and a/./b are a/b.
  const plain = pattern.replace(/\/(?:\.?\/)+/g, "/").replace(/^\.(?:\/|$)/, "");
  const below = [path, named]
    .map((directory) => `${directory.replace(/\/+$/, "")}/`)
    .find((directory) => plain.startsWith(directory));
  const relative = plain.slice(below?.length ?? 0);
  if (relative.startsWith("/") || relative.split("/").includes("..")) {
    throw invalidArgument(
      field,
      `${JSON.stringify(pattern.slice(0, 200))} leaves the directory to search, ${named}. Give a pattern for paths below it, and another directory as params.path.`,
    );
  }
  return relative === "" || relative.endsWith("/") ? `${relative}**` : relative;
}

/** The part of a path below the directory that `find` or `grep` searched. */
function relativeTo(directory: string, path: string): string {
  return path.slice(directory.length).replace(/^\/+/, "");
}

function paceOf({ signal, timeout }: ToolCall): Pace {
  return new Pace(AbortSignal.any([signal, timeout]));
}

/** Splits what arrives in chunks at separators, which alternate. Of a long part only the start is kept. */
class Splitter {
  readonly #separators: readonly number[];
  /** The start of a part that is not complete. */
  #held: Buffer = Buffer.alloc(0);
  /** How many parts there were. */
  count = 0;

  constructor(separators: readonly number[]) {
    this.#separators = separators;
  }

  /** The parts that end in a chunk. */
  *of(chunk: Buffer): Generator<Buffer> {
    for (let at = 0; at < chunk.length; ) {
      const end = chunk.indexOf(this.#separators[this.count % this.#separators.length] ?? NUL, at);
      const next = end === -1 ? chunk.length : end;
      const more = chunk.subarray(at, Math.min(next, at + MAX_PART_BYTES - this.#held.length));
      const part = this.#held.length === 0 ? more : Buffer.concat([this.#held, more]);
      at = next + 1;
      this.#held = end === -1 ? part : Buffer.alloc(0);
      if (end === -1) return;
      this.count++;
      yield part;
    }
  }
}

/** Calls grep once for many files, then once for each file with matches. Prints these like `grep -Z`. */
const LINES = `found="
$(grep -lsE -e "$0" -- "$@"; echo /)"
for f do
case $found in *"
$f
"*) ;; *) continue;; esac
[ "$(tr -dc '\\000' <"$f" | head -c 1 | wc -c)" -eq 0 ] || continue
grep -nsE -e "$0" -- "$f" | while IFS= read -r line; do printf '%s\\0%s\\n' "$f" "$line"; done
done`;

/** Tries the pattern first: below the path there may be no file for which grep would report an error. */
const SEARCH = `echo | grep -E -e "$2" >/dev/null; [ $? -le 1 ] || exit 2
find "$1" -type d -name .git -prune -o -type f -exec sh -c "$3" "$2" {} +`;

/** Does what `grep -rnIHEZ --exclude-dir=.git` does, with options that busybox's tools have too. */
function portableGrep(path: string, pattern: string): string[] {
  return ["sh", "-c", SEARCH, "sh", path, pattern, LINES];
}

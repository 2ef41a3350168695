import { posix } from "node:path";
import { BerthError, invalidArgument } from "../../../base/errors.ts";
import { withoutVanished } from "../../../files/script.ts";
import { OWN_COMMAND, type ProcessManager } from "../../../processes/manager.ts";
import type { SessionHost, ToolCall } from "../../backend.ts";
import { Glob } from "./glob.ts";
import { Pace } from "./pace.ts";
import { syntaxOf } from "./perl-syntax.ts";

/** Bytes of names and lines that one search reads. */
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;
/** How much of a tool's stderr is read. */
const MAX_COMPLAINT_BYTES = 64 * 1024;
/** How many results a search returns. */
export const MAX_FOUND = 1000;
const MAX_LINE = 500;
const NUL = 0;
const NEWLINE = 0x0a;
/** The error of a grep without Perl's syntax, and of busybox's grep for most options. */
const NO_OPTION = /(invalid|unrecognized|unknown) option|not (supported|compiled)|perl-regexp/i;
const FORBIDDEN = /: permission denied$/i;

/** A line that matches the pattern. */
interface FoundLine {
  readonly path: string;
  readonly line: number;
  readonly text: string;
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

  /** @param isHidden returns whether searches skip a path */
  constructor(processes: ProcessManager, host: SessionHost, isHidden: (path: string) => boolean) {
    this.#processes = processes;
    this.#host = host;
    this.#isHidden = isHidden;
  }

  /**
   * Files below a directory whose relative path matches a pattern. Sorted by bytes; one more than are shown if there
   * are more.
   */
  async glob(place: SearchPlace, pattern: string, call: ToolCall): Promise<string[]> {
    const glob = new Glob("params.pattern", relativePattern("params.pattern", place, pattern));
    const directory = place.path;
    const output = await this.#run(
      ["find", directory, "-name", ".git", "-prune", "-o", "-type", "f", "-print0"],
      call,
    );
    const pace = paceOf(call);
    let found: string[] = [];
    for await (const bytes of slices(output, [NUL], pace)) {
      const path = bytes.toString();
      if (path === "" || this.#isHidden(path)) continue;
      if (await glob.matches(relativeTo(directory, path), pace)) found.push(path);
      // More results are neither shown nor counted, and sorting in small batches is fast.
      if (found.length > 2 * MAX_FOUND) found = found.sort().slice(0, MAX_FOUND + 1);
    }
    return found.sort().slice(0, MAX_FOUND + 1);
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
  ): Promise<FoundLine[]> {
    // grep would look for lines that match any of the pattern's lines.
    if (pattern.includes("\n")) {
      throw invalidArgument(
        "params.pattern",
        "holds a line break, but grep looks at one line at a time. Give a pattern for one line; a|b matches either.",
      );
    }
    const wanted = glob === undefined ? undefined : nameMatcher(place, glob);
    const { path } = place;
    const { perl, extended } = syntaxOf(pattern);
    if (perl !== undefined && extended !== undefined) throw mixed(perl, extended);
    const options = perl === undefined ? "-rnIHEZ" : "-rnIHPZ";
    const output = await this.#run(
      // A pipe would be waited for.
      ["grep", options, "--devices=skip", "--exclude-dir=.git", "-e", pattern, "--", path],
      call,
      (complaint) => {
        if (!NO_OPTION.test(complaint)) return undefined;
        if (perl !== undefined) throw noPerl(perl);
        return this.#run(portableGrep(path, pattern), call);
      },
    );
    const pace = paceOf(call);
    const found: FoundLine[] = [];
    let file = "";
    let isName = false;
    for await (const part of slices(output, [NUL, NEWLINE], pace)) {
      isName = !isName;
      if (isName) {
        file = part.toString();
        continue;
      }
      if (this.#isHidden(file) || (wanted !== undefined && !(await wanted(file, pace)))) continue;
      const colon = part.indexOf(":");
      found.push({
        path: file,
        line: Number(part.toString("utf8", 0, colon)),
        text: part.toString("utf8", colon + 1, colon + 1 + 4 * MAX_LINE).slice(0, MAX_LINE),
      });
      if (found.length > MAX_FOUND) break;
    }
    return found;
  }

  /** @param instead replaces a tool that failed for another reason than problems with files */
  async #run(
    args: readonly string[],
    call: ToolCall,
    instead: (complaint: string) => Promise<Buffer> | undefined = () => undefined,
  ): Promise<Buffer> {
    const { stdout, stderr, status } = await this.#processes.run(
      {
        ...OWN_COMMAND,
        sandbox: this.#host.name,
        command: { kind: "argv", args },
        env: { LC_ALL: "C.UTF-8" },
        timeoutMs: call.timeoutMs,
      },
      MAX_OUTPUT_BYTES,
      AbortSignal.any([call.signal, call.timeout]),
    );
    // find exits with 1 if it could not read something. grep exits with 1 if it found nothing, and with 2 if it could
    // not read some files.
    const complaint = stderr.result().data.toString("utf8", 0, MAX_COMPLAINT_BYTES).trim();
    if (status.exitCode > 1 && !isOfFiles(complaint)) {
      const replacement = instead(complaint);
      if (replacement !== undefined) return replacement;
      throw new BerthError(
        "UNSUPPORTED",
        `${args[0]} failed (exit code ${status.exitCode}). ${complaint}`.trim(),
      );
    }
    const { data, gap } = stdout.result();
    // The tail after a gap starts in the middle of a name.
    return data.subarray(0, gap?.from ?? data.length);
  }
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
function nameMatcher(place: SearchPlace, pattern: string): (file: string, pace: Pace) => Promise<boolean> {
  const glob = new Glob("params.glob", relativePattern("params.glob", place, pattern));
  const ofName = !pattern.includes("/");
  return (file, pace) =>
    // Lines may be looked for in a single file.
    glob.matches(ofName || file === place.path ? posix.basename(file) : relativeTo(place.path, file), pace);
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

/** Splits an output at the separators, which alternate. */
async function* slices(output: Buffer, separators: readonly number[], pace: Pace): AsyncGenerator<Buffer> {
  for (let at = 0, count = 0; at < output.length; count++) {
    const end = output.indexOf(separators[count % separators.length] ?? NUL, at);
    const next = end < 0 ? output.length : end;
    yield output.subarray(at, next);
    at = next + 1;
    await pace.next();
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

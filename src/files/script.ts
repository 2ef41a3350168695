import { isUtf8 } from "node:buffer";
import { type ByteString, toBytes, toText } from "../base/byte-string.ts";
import { BerthError } from "../base/errors.ts";
import { quote } from "../base/shell-quote.ts";

/** Exit codes by which scripts report a known cause. The tools themselves do not use these numbers. */
export const EXIT = {
  missing: 40,
  /** A component of the path is not a directory. */
  notDirectory: 41,
  forbidden: 42,
  /** It exists, but is of another kind than the operation needs. */
  kind: 43,
  exists: 44,
  notEmpty: 45,
  beyondEnd: 46,
  /** A tool is missing; its name is the last line of stderr. */
  noTool: 47,
  /** stdin ended early. */
  incomplete: 48,
  /** A directory cannot be moved into itself. */
  intoItself: 49,
  /** A file has large holes, which the tool would write as zeros; its name is the last line of stderr. */
  holes: 50,
} as const;

/**
 * The start of every script, for the `sh` of dash, bash and busybox. Scripts use tests to find what is wrong, because
 * messages differ between tools. What tests cannot find (no space, a busy mount) is read from messages of the C
 * library, which `LC_ALL=C` makes uniform.
 *
 * A test and the action after it are two steps. A process of the sandbox that changes the path in between breaks only
 * the operation on its own sandbox. A FIFO put there at that moment blocks the script until its timeout.
 */
const START = `export LC_ALL=C TZ=UTC0 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\${PATH:+:$PATH}
unset CDPATH POSIXLY_CORRECT TAR_OPTIONS
umask 022
`;

/**
 * The functions that scripts may use, each after those that use it:
 *
 * - `fail TOOL PATH` ends the script after TOOL failed on PATH.
 * - `enter PATH` enters a readable directory.
 * - `regular PATH` and `directory PATH` end it if PATH, after following links, is something else.
 * - `place PATH` ends it if nothing can be created at PATH.
 * - `parents PATH` creates the directories above PATH.
 * - `filled PATH` succeeds if a directory is not empty.
 * - `reach PATH` ends it if a directory above PATH cannot be entered, with the reason.
 * - `need TOOL` ends it if the image lacks the tool.
 */
const FUNCTIONS = {
  fail: `{ need $1; reach "$2"; [ -e "$2" ] || exit ${EXIT.missing}; exit 1; }`,
  enter: `{ directory "$1"; cd "$1" && [ -r . ] || exit ${EXIT.forbidden}; }`,
  regular: `{ [ -f "$1" ] && return; [ -e "$1" ] && exit ${EXIT.kind}; reach "$1"; exit ${EXIT.missing}; }`,
  directory: `{ [ -d "$1" ] && return; [ -e "$1" ] && exit ${EXIT.kind}; reach "$1"; exit ${EXIT.missing}; }`,
  place: `{ [ -w "\${1%/*}/" ] && [ -x "\${1%/*}/" ] && return; reach "$1"; exit ${EXIT.forbidden}; }`,
  parents: `{ [ -d "\${1%/*}/" ] || mkdir -p "\${1%/*}" || { need mkdir; d=\${1%/*}
while [ "$d" ] && [ ! -e "$d" ] && [ ! -L "$d" ]; do d=\${d%/*}; done
[ -d "$d/" ] || { [ -e "$d" ] && exit ${EXIT.notDirectory}; exit ${EXIT.missing}; }
[ -w "$d/" ] || exit ${EXIT.forbidden}
exit 1; }; }`,
  filled: `{ ls -A "$1" | read -r x; }`,
  reach: `{ d= r=\${1#/}
while :; do
[ -x "\${d:-/}" ] || exit ${EXIT.forbidden}
case $r in */*) ;; *) return;; esac
d=$d/\${r%%/*} r=\${r#*/}
[ -d "$d" ] && continue
[ -e "$d" ] && exit ${EXIT.notDirectory}
exit ${EXIT.missing}
done; }`,
  need: `{ command -v $1 >/dev/null && return; printf '\\n%s' $1 >&2; exit ${EXIT.noTool}; }`,
};

const DEFINITIONS = Object.entries(FUNCTIONS).map(([name, body]) => ({
  use: new RegExp(`\\b${name} `),
  definition: `${name}() ${body}\n`,
}));

/** Assembles a script, with the functions that it uses: some shells read it one byte at a time. */
export function script(...parts: readonly string[]): string {
  let text = parts.join("");
  for (const { use, definition } of DEFINITIONS) if (use.test(text)) text = definition + text;
  return START + text;
}

/** Sets a shell variable to any bytes but NUL. A script is text, so values that are not UTF-8 go through `printf`. */
export function assign(variable: string, value: ByteString): string {
  const bytes = toBytes(value);
  if (isUtf8(bytes)) return `${variable}=${quote(bytes.toString("utf8"))}\n`;
  // The slash protects trailing newlines, which `$()` would strip.
  return `${variable}=$(printf '${printfFormat(bytes)}/')\n${variable}=\${${variable}%/}\n`;
}

/** Sets the positional parameters. */
export function assignAll(values: readonly ByteString[]): string {
  const before: string[] = [];
  const words = values.map((value, index) => {
    const bytes = toBytes(value);
    if (isUtf8(bytes)) return quote(bytes.toString("utf8"));
    before.push(assign(`v${index}`, value));
    return `"$v${index}"`;
  });
  return `${before.join("")}set -- ${words.join(" ")}\n`;
}

/**
 * A format that makes `printf` write exactly these bytes, without single quotes. Valid UTF-8 stays as it is; otherwise
 * every byte beyond ASCII is escaped.
 */
export function printfFormat(bytes: Buffer): string {
  const text = isUtf8(bytes) ? bytes.toString("utf8") : bytes.toString("latin1");
  const escaped = isUtf8(bytes) ? TAKES_ESCAPE : TAKES_ESCAPE_OR_NO_ASCII;
  return text.replace(escaped, octal);
}

const TAKES_ESCAPE = /^-|[\0-\x08\x0b-\x1f'\\%\x7f]/g;
const TAKES_ESCAPE_OR_NO_ASCII = /^-|[\0-\x08\x0b-\x1f'\\%\x7f-\xff]/g;

function octal(character: string): string {
  return `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`;
}

/** The subject of an operation, for its error. */
export interface Subject {
  readonly path: ByteString;
  /** What the path must be, such as "a regular file". */
  readonly wanted?: string;
}

/** How a failed script ended. */
export interface ScriptFailure {
  readonly code: number;
  /** The end of its stderr. */
  readonly stderr: string;
}

/** SIGKILL ended a tool, or the script itself. */
export const KILLED_CODE = 137;

/** The ends of tools' error messages, with glibc and musl. */
const WORDS = {
  missing: /: (no such file( or directory)?|nonexistent directory|directory nonexistent)$/im,
  forbidden: /: (permission denied|operation not permitted|read-only file system)$/im,
  noSpace: /: (no space left on device|disk quota exceeded|quota exceeded|file too large)$/im,
  busy: /: ((device or )?resource busy)$/im,
  killed: /terminated by signal 9$/im,
  exhausted:
    /(cannot fork|can't fork|resource temporarily unavailable|(cannot allocate|out of) memory|retry: )/i,
};

/** The message of a tool that continues without a vanished file. */
const VANISHED = /: no such file or directory$/i;

const MAX_WORDS = 300;

/** Converts the failure of a script to the caller's error. */
export function scriptError({ path, wanted }: Subject, failure: ScriptFailure): BerthError {
  const name = JSON.stringify(toText(path));
  const { code, stderr } = failure;
  const metadata = { path: toText(path) };
  const error = (reason: BerthError["reason"], message: string): BerthError =>
    new BerthError(reason, `${name}: ${message}`, { metadata });
  const forbidden = () =>
    error("FILE_PERMISSION", "the user has no right to do this, or the file system is read-only.");
  switch (code) {
    case EXIT.missing:
      // The directory of a link's target may not be accessible.
      return WORDS.forbidden.test(stderr)
        ? forbidden()
        : error("FILE_NOT_FOUND", "there is no such file or directory.");
    case EXIT.notDirectory:
      return error("FILE_KIND", "something on the path is not a directory.");
    case EXIT.forbidden:
      return forbidden();
    case EXIT.kind:
      return error("FILE_KIND", `it is not ${wanted ?? "of the kind that this needs"}.`);
    case EXIT.exists:
      return error("FILE_EXISTS", "something exists there already.");
    case EXIT.notEmpty:
      return error("DIRECTORY_NOT_EMPTY", "the directory is not empty.");
    case EXIT.beyondEnd:
      return error("OFFSET_OUT_OF_RANGE", "the offset lies beyond the end of the file.");
    case EXIT.intoItself:
      return error("INVALID_ARGUMENT", "a directory cannot be moved into itself.");
    case EXIT.holes:
      return error(
        "UNSUPPORTED",
        `the file ${JSON.stringify(words(stderr.slice(stderr.lastIndexOf("\n") + 1)))} has large holes, and the image's tar would write them in full. Use an image with GNU tar.`,
      );
    case EXIT.noTool:
      return missingTool(stderr.slice(stderr.lastIndexOf("\n") + 1));
  }
  if (WORDS.noSpace.test(stderr)) return error("NO_SPACE", "no space is left for it in the sandbox.");
  if (WORDS.forbidden.test(stderr)) return forbidden();
  if (WORDS.busy.test(stderr)) return error("FILE_KIND", "it is in use as a mount point.");
  if (WORDS.exhausted.test(stderr)) {
    return error("TOO_MANY_OPERATIONS", "the sandbox has reached its limit of processes or memory.");
  }
  if (WORDS.missing.test(stderr)) return error("FILE_NOT_FOUND", "there is no such file or directory.");
  if (code === KILLED_CODE || WORDS.killed.test(stderr)) {
    return error(
      "TOO_MANY_OPERATIONS",
      "it was killed in the sandbox, which has reached its limit of memory, or in which something kills processes.",
    );
  }
  return error("UNSUPPORTED", `it failed in the sandbox (exit code ${code}). ${words(stderr)}`);
}

/** The error for a tool that the image lacks. */
function missingTool(tool: string): BerthError {
  return new BerthError(
    "UNSUPPORTED",
    `The sandbox's image has no ${words(tool)}, which this needs. Use an image that has it.`,
    { metadata: { tool: words(tool) } },
  );
}

/** The error output of a tool, without messages about files that vanished meanwhile. */
export function withoutVanished(stderr: string): string {
  return stderr
    .split("\n")
    .filter((line) => line !== "" && !VANISHED.test(line))
    .join("\n");
}

/** The output of a tool of the sandbox, shortened for a message. */
function words(stderr: string): string {
  return stderr
    .replace(/[^\x20-\x7e]+/g, " ")
    .trim()
    .slice(-MAX_WORDS);
}

/** Total size of names that fit into one script that a lane accepts. */
const NAMES_BYTES_PER_SCRIPT = 16 * 1024;

/** Splits names into parts that each fit into one script. */
export function* inParts(names: readonly ByteString[]): Generator<ByteString[]> {
  let part: ByteString[] = [];
  let bytes = 0;
  for (const name of names) {
    if (bytes > 0 && bytes + name.length > NAMES_BYTES_PER_SCRIPT) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(name);
    bytes += name.length + "'./' ".length;
  }
  if (part.length > 0) yield part;
}

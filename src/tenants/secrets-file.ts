import { LineCounter, parseDocument } from "yaml";
import { z } from "zod";
import { IN_PLAIN_WORDS } from "../base/schema-words.ts";
import { TokenFileError } from "./token-file.ts";

/** Valid names of secrets. A file with such a name cannot be outside its directory. */
export const SECRET_NAME = /^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$/;
const NAME_FORM =
  'is not the name of a secret: 1 to 253 letters, digits, ".", "_" and "-", with a letter or digit at both ends';
const MAX_SECRETS = 4000;
/** The longest value in bytes, which still fits into a variable. */
export const MAX_VALUE_BYTES = 64 * 1024;

const secretsFile = z.strictObject(
  {
    secrets: z.record(
      z.string().regex(SECRET_NAME, NAME_FORM),
      z.string("is not text; put it in quotes"),
      "is not a map of secrets",
    ),
  },
  { error: ({ code }) => (code === "invalid_type" ? "is not a map with secrets: {NAME: VALUE}" : undefined) },
);

/**
 * Parses the text of a secrets file. Errors contain positions and names of secrets, but never a value.
 * @param file the file's name, for errors
 * @throws TokenFileError
 */
export function parseSecretsFile(text: string, file: string): ReadonlyMap<string, string> {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [problem] = [...document.errors, ...document.warnings];
  if (problem !== undefined) {
    const { line, col } = lines.linePos(problem.pos[0]);
    // Do not use the parser's message, which may quote the text.
    const what =
      problem.code === "DUPLICATE_KEY" ? "has a name twice. Remove one" : `is not YAML (${problem.code})`;
    throw new TokenFileError(`${file}:${line}:${col}: ${what}`);
  }
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: 0 });
  } catch (cause) {
    throw new TokenFileError(`${file}: uses an alias (*name); write out what it stands for`, { cause });
  }
  const parsed = secretsFile.safeParse(content, IN_PLAIN_WORDS);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const message = issue?.code === "invalid_key" ? NAME_FORM : (issue?.message ?? "is malformed");
    throw new TokenFileError(
      [file, ...(issue?.path.length ? [issue.path.join(".")] : []), message].join(": "),
    );
  }
  const values = new Map(Object.entries(parsed.data.secrets));
  if (values.size > MAX_SECRETS) {
    throw new TokenFileError(
      `${file}: has more than ${MAX_SECRETS} secrets; a directory with one file per secret may hold more`,
    );
  }
  for (const [name, value] of values) assertUsable(value, `${file}: secrets.${name}`);
  return values;
}

/** Checks a value. @param where the value's position, for errors. @throws TokenFileError */
export function assertUsable(value: string, where: string): void {
  if (value === "") throw new TokenFileError(`${where} is empty`);
  if (value.includes("\0")) throw new TokenFileError(`${where} holds a NUL byte`);
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES) {
    throw new TokenFileError(`${where} is longer than ${MAX_VALUE_BYTES >> 10} KiB`);
  }
}

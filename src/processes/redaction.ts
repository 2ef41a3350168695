import { trimEndOf } from "../base/trim.ts";
import type { OutputStream } from "../engine/port.ts";
import { Redactor } from "./redactor.ts";
import { SecretSearch } from "./secret-search.ts";

/** Output that passes through a {@link Redaction}. */
export interface RedactedOutput {
  /** Takes the next bytes of a stream. */
  data(stream: OutputStream, chunk: Buffer): void;
  /** Ends both streams: passes on what was held back. */
  end(): void;
}

/** Removes the values of secrets from the output of programs that have them. */
export class Redaction {
  readonly #forms: SecretSearch;
  readonly #quoted: SecretSearch;

  /** @param given must not contain empty values */
  constructor(given: readonly string[]) {
    // Search for values without a trailing newline, as in keys from files: $(…) in a shell drops it.
    const values = given.map((value) => trimEndOf(value, "\r\n") || value);
    // A terminal writes newlines as CR LF.
    this.#forms = searchOf(values.flatMap((value) => [value, value.replace(/\r?\n/g, "\r\n")]));
    this.#quoted = searchOf(values.flatMap((value) => [value, ...quotedForms(value)]));
  }

  /**
   * Redacts output, regardless of how it is split into chunks. @param pass takes the redacted output; it gets no empty
   * chunks.
   */
  output(pass: (stream: OutputStream, chunk: Buffer) => void): RedactedOutput {
    const streams = { stdout: new Redactor(this.#forms), stderr: new Redactor(this.#forms) };
    const passOn = (stream: OutputStream, chunk: Buffer): void => {
      if (chunk.length > 0) pass(stream, chunk);
    };
    return {
      data: (stream, chunk) => passOn(stream, streams[stream].push(chunk)),
      end: () => {
        passOn("stdout", streams.stdout.end());
        passOn("stderr", streams.stderr.end());
      },
    };
  }

  /**
   * Redacts a complete text, also values in it that are written as string literals of a program.
   * @param isCut whether the text was truncated: removes its end if that may be the start of a value. Default false.
   */
  text(text: string, { isCut = false } = {}): string {
    const redactor = new Redactor(this.#quoted);
    const known = redactor.push(Buffer.from(text));
    return isCut ? known.toString() : Buffer.concat([known, redactor.end()]).toString();
  }
}

/** The content of string literals for a value: either `"` or `'` is escaped, depending on the quotes. */
function quotedForms(value: string): string[] {
  const escapes: Record<string, string> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  const literal = value.replace(/[\\\n\r\t]/g, (sign) => escapes[sign] ?? sign);
  return [literal, literal.replaceAll("'", "\\'"), literal.replaceAll('"', '\\"')];
}

function searchOf(forms: readonly string[]): SecretSearch {
  return new SecretSearch([...new Set(forms)].map((form) => Buffer.from(form)));
}

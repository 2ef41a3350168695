import { trimEndOf } from "../base/trim.ts";
import type { OutputStream } from "../engine/port.ts";
import { Redactor } from "./redactor.ts";
import { SecretSearch } from "./secret-search.ts";

/** Output that passes a {@link Redaction}. */
export interface RedactedOutput {
  /** Takes the next bytes of a stream. */
  data(stream: OutputStream, chunk: Buffer): void;
  /** Passes on what was held back, at the end of both streams. */
  end(): void;
}

/** The values of secrets, to be taken out of what those write that have them. */
export class Redaction {
  readonly #forms: SecretSearch;
  readonly #quoted: SecretSearch;

  /** @param given none of them empty */
  constructor(given: readonly string[]) {
    // What ends in a line's end, as keys in files do, is often written without it: $(…) of a shell drops it.
    const values = given.map((value) => trimEndOf(value, "\r\n") || value);
    // A terminal writes another end of a line.
    this.#forms = searchOf(values.flatMap((value) => [value, value.replace(/\r?\n/g, "\r\n")]));
    this.#quoted = searchOf(values.flatMap((value) => [value, ...quotedForms(value)]));
  }

  /** Redacts output, however its chunks are divided. @param pass takes what is left, never an empty chunk. */
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
   * Redacts a whole text, also where it shows a value as a literal of a program.
   * @param isCut whether more came after it: its end goes too, where that may be the beginning of a value
   */
  text(text: string, { isCut = false } = {}): string {
    const redactor = new Redactor(this.#quoted);
    const known = redactor.push(Buffer.from(text));
    return isCut ? known.toString() : Buffer.concat([known, redactor.end()]).toString();
  }
}

/** What stands between the quotes of a literal: `"` or `'` is escaped or not, as the quotes are. */
function quotedForms(value: string): string[] {
  const escapes: Record<string, string> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  const literal = value.replace(/[\\\n\r\t]/g, (sign) => escapes[sign] ?? sign);
  return [literal, literal.replaceAll("'", "\\'"), literal.replaceAll('"', '\\"')];
}

function searchOf(forms: readonly string[]): SecretSearch {
  return new SecretSearch([...new Set(forms)].map((form) => Buffer.from(form)));
}

import { trimEndOf } from "../base/trim.ts";
import { TurnShare } from "../base/turn-share.ts";
import type { OutputStream } from "../engine/port.ts";
import { Redactor } from "./redactor.ts";
import { SecretSearch } from "./secret-search.ts";

/** Output that passes through a {@link Redaction}. */
interface RedactedOutput {
  /** Takes the next bytes of a stream. */
  data(stream: OutputStream, chunk: Buffer): void;
  /** Ends both streams: passes on what was held back. */
  end(): void;
}

/** The share of the event loop for texts: a sandbox may return megabytes. */
const turns = new TurnShare();
/** How much of a text is searched before others get their turn. */
const TEXT_BYTES = 64 * 1024;

/** Removes the values of secrets from the output of programs that have them. */
export class Redaction {
  readonly #forms: SecretSearch;
  readonly #values: readonly string[];
  /** Built for the first text. */
  #quoted: Promise<SecretSearch> | undefined;

  private constructor(values: readonly string[], forms: SecretSearch) {
    this.#values = values;
    this.#forms = forms;
  }

  /** @param given must not contain empty values */
  static async of(given: readonly string[]): Promise<Redaction> {
    // Search for values without a trailing newline, as in keys from files: $(…) in a shell drops it.
    const values = given.map((value) => trimEndOf(value, "\r\n") || value);
    // A terminal writes newlines as CR LF.
    const forms = await searchOf(values.flatMap((value) => [value, value.replace(/\r?\n/g, "\r\n")]));
    return new Redaction(values, forms);
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
  async text(text: string, { isCut = false } = {}): Promise<string> {
    this.#quoted ??= searchOf(this.#values.flatMap((value) => [value, ...quotedForms(value)]));
    const redactor = new Redactor(await this.#quoted);
    const bytes = Buffer.from(text);
    const known: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += TEXT_BYTES) {
      await turns.enter();
      known.push(redactor.push(bytes.subarray(at, at + TEXT_BYTES)));
    }
    return Buffer.concat(isCut ? known : [...known, redactor.end()]).toString();
  }
}

/** The content of string literals for a value: either `"` or `'` is escaped, depending on the quotes. */
function quotedForms(value: string): string[] {
  const escapes: Record<string, string> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  const literal = value.replace(/[\\\n\r\t]/g, (sign) => escapes[sign] ?? sign);
  return [literal, literal.replaceAll("'", "\\'"), literal.replaceAll('"', '\\"')];
}

function searchOf(forms: readonly string[]): Promise<SecretSearch> {
  return SecretSearch.of([...new Set(forms)].map((form) => Buffer.from(form)));
}

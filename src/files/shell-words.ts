import { isUtf8 } from "node:buffer";
import { type ByteString, toBytes } from "../base/byte-string.ts";
import { quote } from "../base/shell-quote.ts";

/** Sets a shell variable to any bytes but NUL. A script travels as text, so what is not UTF-8 goes through `printf`. */
export function assign(variable: string, value: ByteString): string {
  const bytes = toBytes(value);
  if (isUtf8(bytes)) return `${variable}=${quote(bytes.toString("utf8"))}\n`;
  // The slash keeps a newline at the end, which `$()` would take away.
  return `${variable}=$(printf ${printfFormat(bytes)}/)\n${variable}=\${${variable}%/}\n`;
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
 * A quoted format that makes `printf` write exactly these bytes. UTF-8 stays
 * as it is where all of it is that; else every byte beyond ASCII is escaped.
 */
export function printfFormat(bytes: Buffer): string {
  const text = isUtf8(bytes) ? bytes.toString("utf8") : bytes.toString("latin1");
  const escaped = isUtf8(bytes) ? TAKES_ESCAPE : TAKES_ESCAPE_OR_NO_ASCII;
  return `'${text.replace(escaped, octal)}'`;
}

const TAKES_ESCAPE = /^-|[\0-\x08\x0b-\x1f'\\%\x7f]/g;
const TAKES_ESCAPE_OR_NO_ASCII = /^-|[\0-\x08\x0b-\x1f'\\%\x7f-\xff]/g;

function octal(character: string): string {
  return `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`;
}

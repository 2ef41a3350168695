import { type ByteString, fromBytes, toBytes } from "../../base/byte-string.ts";
import { notTar } from "./tar-header.ts";

const PAX_SEPARATOR = 0x20;
const NEWLINE = 0x0a;

/**
 * Reads the records of a pax header: `<length> <key>=<value>\n`, values of any bytes.
 * @throws `ARCHIVE_REJECTED` when they are none.
 */
export function decodePax(body: Buffer): Map<string, ByteString> {
  const records = new Map<string, ByteString>();
  for (let at = 0; at < body.length; ) {
    const space = body.indexOf(PAX_SEPARATOR, at);
    const digits = space < 0 ? "" : body.toString("latin1", at, space);
    const end = at + Number(digits);
    const equals = body.indexOf("=", space);
    const isRecord =
      /^[1-9]\d{0,9}$/.test(digits) &&
      end <= body.length &&
      equals > space &&
      equals < end &&
      body[end - 1] === NEWLINE;
    if (!isRecord) throw notTar("an extended header is damaged");
    records.set(body.toString("latin1", space + 1, equals), fromBytes(body.subarray(equals + 1, end - 1)));
    at = end;
  }
  return records;
}

/** Writes records of a pax header. */
export function encodePax(records: ReadonlyMap<string, ByteString>): Buffer {
  const lines = Array.from(records, ([key, value]) => {
    const rest = ` ${key}=${value}\n`;
    // The length counts its own digits.
    let length = rest.length + 1;
    while (String(length).length + rest.length !== length) length++;
    return `${length}${rest}`;
  });
  return toBytes(lines.join(""));
}

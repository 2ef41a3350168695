import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";

/** Formats a duration as its one or two largest parts: `850ms`, `12s`, `3m 20s`, `2h`, `5d 4h`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const seconds = Math.floor(ms / 1000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count}${unit}`)
    .join(" ");
}

/** Formats how long ago a time was. Empty if there is none. */
export function formatAge(time: Timestamp | undefined): string {
  return time ? formatDuration(Math.max(0, Date.now() - timestampMs(time))) : "";
}

/** Formats when a time will be, for example `in 59m 3s`. Empty if there is none. */
export function formatRemaining(time: Timestamp | undefined): string {
  return time ? `in ${formatDuration(Math.max(0, timestampMs(time) - Date.now()))}` : "";
}

/** Formats a size in powers of 1024, for example `512 MiB`. */
export function formatSize(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let amount = bytes;
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit++;
  }
  const digits = unit === 0 || Number.isInteger(amount) || amount >= 100 ? 0 : 1;
  return `${amount.toFixed(digits)} ${units[unit]}`;
}

/** Characters that terminals draw two columns wide: those of East Asia, apart from narrow forms, and pictures. */
const WIDE =
  /^(?![\uff61-\uffdc])[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Emoji_Presentation}\u3000-\u303e\uff01-\uffe6]/u;
/** Characters that terminals draw over the one before. */
const COMBINING = /^[\p{Mn}\p{Me}]/u;

/** How many columns of a terminal a text without control characters takes. */
export function columnsOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  let columns = 0;
  for (const character of text) if (!COMBINING.test(character)) columns += WIDE.test(character) ? 2 : 1;
  return columns;
}

/**
 * Formats rows below their headings, each column as wide as its widest cell. `paint` may colour a cell, which does not
 * change its width.
 */
export function formatTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  paint: (text: string, row: number, column: number) => string = (text) => text,
): string {
  const lines = [headings, ...rows];
  // Not Math.max(...lines), which overflows the stack if there are many.
  const widths = headings.map((_, column) =>
    lines.reduce((most, cells) => Math.max(most, columnsOf(cells[column] ?? "")), 0),
  );
  return lines
    .map((cells, line) =>
      cells
        .map((cell, column) => {
          const painted = line === 0 ? cell : paint(cell, line - 1, column);
          return painted + " ".repeat((widths[column] ?? 0) - columnsOf(cell));
        })
        .join("  ")
        .trimEnd(),
    )
    .map((line) => `${line}\n`)
    .join("");
}

/** Formats the name of an enum value: `USER_KERNEL` becomes `user-kernel`. */
export function formatWord(name: string | undefined): string {
  return (name ?? "unknown").toLowerCase().replaceAll("_", "-");
}

/** A message as JSON, with the API's own names. */
export function messageJson<D extends DescMessage>(schema: D, message: MessageShape<D>): unknown {
  return toJson(schema, message, { alwaysEmitImplicit: true });
}

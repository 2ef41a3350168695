/**
 * Expands the braces of a glob like a shell: `a{b,c}`, `{1..9}`, `{01..10..3}`, `{a..e}`, nested.
 * @returns undefined if there are more than `max` patterns
 */
export function expandBraces(pattern: string, max: number): string[] | undefined {
  const open = pattern.search(/(?<!\\)\{/);
  if (open < 0) return [pattern];
  const group = parseGroup(pattern, open);
  // An unclosed brace is a plain character, and so is one around a single word.
  const end = group?.end ?? open + 1;
  const rest = expandBraces(pattern.slice(end), max);
  const middle = group === undefined ? ["\\{"] : expandGroup(group.parts, max);
  if (rest === undefined || middle === undefined || rest.length * middle.length > max) return undefined;
  const before = pattern.slice(0, open);
  return middle.flatMap((part) => rest.map((after) => before + part + after));
}

interface Group {
  /** The parts between the commas. */
  readonly parts: readonly string[];
  /** The index after its closing brace. */
  readonly end: number;
}

function parseGroup(pattern: string, open: number): Group | undefined {
  const parts: string[] = [];
  let depth = 0;
  let from = open + 1;
  for (let at = open; at < pattern.length; at++) {
    const character = pattern[at];
    if (character === "\\") at++;
    else if (character === "{") depth++;
    else if (character === "," && depth === 1) {
      parts.push(pattern.slice(from, at));
      from = at + 1;
    } else if (character === "}" && --depth === 0) {
      parts.push(pattern.slice(from, at));
      return { parts, end: at + 1 };
    }
  }
  return undefined;
}

function expandGroup(parts: readonly string[], max: number): string[] | undefined {
  const [only = "", another] = parts;
  if (another === undefined) {
    const range = RANGE.exec(only);
    if (range !== null) return expandRange(range, max);
    return expandBraces(only, max)?.map((part) => `\\{${part}\\}`);
  }
  const all: string[] = [];
  for (const part of parts) {
    const expanded = expandBraces(part, max - all.length);
    if (expanded === undefined) return undefined;
    all.push(...expanded);
  }
  return all.length > max ? undefined : all;
}

const RANGE = /^(?:(-?\d{1,9})\.\.(-?\d{1,9})|([a-zA-Z])\.\.([a-zA-Z]))(?:\.\.(-?\d{1,9}))?$/;

function expandRange(range: RegExpExecArray, max: number): string[] | undefined {
  const [, first = "", last = "", firstLetter, lastLetter, step = "1"] = range;
  const letters = firstLetter !== undefined && lastLetter !== undefined;
  const from = letters ? firstLetter.charCodeAt(0) : Number(first);
  const to = letters ? lastLetter.charCodeAt(0) : Number(last);
  const by = Math.max(1, Math.abs(Number(step)));
  const count = Math.floor(Math.abs(to - from) / by) + 1;
  if (count > max) return undefined;
  const width = /^-?0\d/.test(first) || /^-?0\d/.test(last) ? Math.max(first.length, last.length) : 0;
  return Array.from({ length: count }, (_, index) => {
    const value = from + Math.sign(to - from) * by * index;
    if (letters) return `\\${String.fromCharCode(value)}`;
    return value < 0 ? `-${String(-value).padStart(width - 1, "0")}` : String(value).padStart(width, "0");
  });
}

import { inspect } from "node:util";
import type { Io } from "./io.ts";
import { visibleLines } from "./visible.ts";

/** What a text means, which decides its colour. */
export type Tone = "good" | "warning" | "bad" | "muted";

const { green, yellow, red, dim } = inspect.colors;

/** The codes that start and end each tone's colour. */
const CODES = { good: green, warning: yellow, bad: red, muted: dim } as const;

/** Colours a text by its tone. Without a tone, or without colours, the text stays as it is. */
type Paint = (text: string, tone: Tone | undefined) => string;

/**
 * How to colour text for a stream: only on a terminal, and not if `NO_COLOR` is set. `FORCE_COLOR` overrides both, as
 * in Node: `0` or `false` means never, anything else means always.
 */
export function paintFor(stream: Io["stdout"], env: Io["env"]): Paint {
  if (!wantsColour(stream, env)) return (text) => text;
  return (text, tone) => {
    const [begin, end] = (tone && CODES[tone]) ?? [];
    return begin === undefined ? text : `\x1b[${begin}m${text}\x1b[${end}m`;
  };
}

function wantsColour(stream: Io["stdout"], { FORCE_COLOR, NO_COLOR, TERM }: Io["env"]): boolean {
  if (FORCE_COLOR !== undefined) return FORCE_COLOR !== "0" && FORCE_COLOR !== "false";
  return stream.isTTY === true && !NO_COLOR && TERM !== "dumb";
}

/**
 * The lines for stderr that say what went wrong and, if known, what to do. They may quote what untrusted code wrote, so
 * nothing in them acts on the terminal.
 */
export function complaint(
  { stderr, env }: Pick<Io, "stderr" | "env">,
  message: string,
  hint?: string,
): string {
  const lines = hint ? `${message}\n${hint}` : message;
  return `${paintFor(stderr, env)("berth:", "bad")} ${visibleLines(lines)}\n`;
}

/** The line for stderr that says what happened, as {@link complaint}. */
export function remarkLine(text: string): string {
  return `berth: ${visibleLines(text)}\n`;
}

import { inspect } from "node:util";
import type { Io } from "./io.ts";

/** What a piece of text says about a thing, which chooses its colour. */
export type Tone = "good" | "warning" | "bad" | "muted";

const { green, yellow, red, dim } = inspect.colors;

/** The codes that begin and end each tone's colour. */
const CODES = { good: green, warning: yellow, bad: red, muted: dim } as const;

/** Colours a text by its tone; without a tone, or where colours are not wanted, the text stays as it is. */
export type Paint = (text: string, tone: Tone | undefined) => string;

/**
 * How to paint what goes to a stream: on a terminal, unless `NO_COLOR` is set.
 * `FORCE_COLOR` decides before both, as for Node itself: `0` or `false` is never, anything else always.
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

/** The lines for stderr that say what went wrong and, where that is known, what to do. */
export function complaint(
  { stderr, env }: Pick<Io, "stderr" | "env">,
  message: string,
  hint?: string,
): string {
  return `${paintFor(stderr, env)("berth:", "bad")} ${message}\n${hint ? `${hint}\n` : ""}`;
}

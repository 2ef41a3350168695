import { z } from "zod";
import { isPrintable } from "./keys.ts";

/** The sides of the largest screen, and its number of pixels. */
const MAX_WIDTH = 7680;
const MAX_HEIGHT = 4320;
const MIN_SIDE = 64;
const MAX_PIXELS = 16_000_000;
const MAX_TEXT = 64 * 1024;
/** The size of the clipboard's text, in both directions. */
export const MAX_CLIPBOARD_BYTES = 1 << 20;
const MAX_SECONDS = 3600;

/** A screen's width and height. */
export const screenSize = z
  .tuple([z.number().int().min(MIN_SIDE).max(MAX_WIDTH), z.number().int().min(MIN_SIDE).max(MAX_HEIGHT)])
  .refine(([width, height]) => width * height <= MAX_PIXELS, `must have at most ${MAX_PIXELS} pixels`)
  .describe("Width and height in pixels: [1920, 1080] by default.");

const coordinate = z.number().int().min(0).max(MAX_WIDTH);

/** Where to act. Missing coordinates are those of the pointer. */
export const place = {
  x: coordinate.describe("From the left, in pixels. Default: where the pointer is.").optional(),
  y: coordinate.describe("From the top, in pixels. Default: where the pointer is.").optional(),
};

/** A required coordinate. */
export const corner = (what: string) => coordinate.describe(`${what}, in pixels.`);

/** A pointer button. */
export const button = z
  .enum(["left", "middle", "right", "back", "forward"])
  .describe("The pointer's button: left, middle, right, back or forward.")
  .default("left");

/** Text to type. */
export const typedText = z
  .string()
  .max(MAX_TEXT)
  .refine(
    (text) => isPrintable(text.replace(/[\n\t]/g, "")),
    "must not contain control characters except newline and tab: use key for other keys",
  )
  .describe(`What to type, in any script; a newline is Return. At most ${MAX_TEXT} characters.`);

/** A key, or several at once. */
export const keyParam = z.string().min(1).max(200);

/** A time in seconds. */
export const seconds = z.number().min(0).max(MAX_SECONDS);

/** Text for the clipboard. */
export const clipboardText = z
  .string()
  .refine(
    (text) => Buffer.byteLength(text) <= MAX_CLIPBOARD_BYTES,
    `must have at most ${MAX_CLIPBOARD_BYTES} bytes`,
  )
  .describe(`For set: the text, of at most ${MAX_CLIPBOARD_BYTES} bytes.`);

const MAX_ARGUMENTS = 1024;
const MAX_COMMAND = 64 * 1024;
const argument = z
  .string()
  .max(MAX_COMMAND)
  .refine((text) => !text.includes("\0"), "must not contain NUL");

/** A program to start: a shell command, or a list of arguments. */
export const command = z
  .union([argument.min(1), z.array(argument).min(1).max(MAX_ARGUMENTS)])
  .describe("What to start: text for sh, or a list of a program and its arguments.");

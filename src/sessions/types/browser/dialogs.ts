import { z } from "zod";
import type { JsonObject } from "../../../base/json.ts";

/** How many dialogs a result names. */
const MAX_REPORTED = 10;
const shortText = z.string().transform((text) => text.slice(0, 1_000).toWellFormed());

/** The event by which a page opens a dialog. */
export const dialogOpening = z.object({
  type: z.enum(["alert", "confirm", "prompt", "beforeunload"]),
  message: shortText,
  defaultPrompt: shortText.optional(),
});

/** Dialogs that pages opened, and that were handled at once: results tell of them. */
export class Dialogs {
  readonly #max: number;
  #reported: JsonObject[] = [];
  #count = 0;

  /** @param max how many a page may open between two results. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Returns whether there are too many of them. */
  add({ type, message }: z.output<typeof dialogOpening>, accepted: boolean): boolean {
    this.#count++;
    if (this.#reported.length < MAX_REPORTED) this.#reported.push({ type, message, accepted });
    return this.#count > this.#max;
  }

  /** Those since the last time; the count of those that are left out comes last. */
  take(): JsonObject[] {
    const more = this.#count - this.#reported.length;
    const taken = more > 0 ? [...this.#reported, { more }] : this.#reported;
    this.#reported = [];
    this.#count = 0;
    return taken;
  }
}

import { z } from "zod";
import type { JsonObject } from "../../../base/json.ts";

/** How many dialogs a result lists. */
const MAX_REPORTED = 10;
const shortText = z.string().transform((text) => text.slice(0, 1_000).toWellFormed());

/** The event by which a page opens a dialog. */
export const dialogOpening = z.object({
  type: z.enum(["alert", "confirm", "prompt", "beforeunload"]),
  message: shortText,
  /** The answer to a prompt. */
  defaultPrompt: z.string().optional(),
});

/** Dialogs that pages opened and Berth answered at once. The next result lists them. */
export class Dialogs {
  readonly #max: number;
  #reported: JsonObject[] = [];
  #count = 0;

  /** @param max how many dialogs pages may open between two results. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Returns whether the limit is exceeded. */
  add({ type, message }: z.output<typeof dialogOpening>, accepted: boolean): boolean {
    this.#count++;
    if (this.#reported.length < MAX_REPORTED) this.#reported.push({ type, message, accepted });
    return this.#count > this.#max;
  }

  /** The dialogs since the last call. If some are left out, the last item is their count. */
  take(): JsonObject[] {
    const more = this.#count - this.#reported.length;
    const taken = more > 0 ? [...this.#reported, { more }] : this.#reported;
    this.#reported = [];
    this.#count = 0;
    return taken;
  }
}

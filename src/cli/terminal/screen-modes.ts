/** Private modes that programs change, and how a terminal at rest has them. `h` sets, `l` resets. */
const AT_REST: ReadonlyMap<string, "h" | "l"> = new Map([
  // Cursor keys of applications, line wrap, a visible cursor.
  ["1", "l"],
  ["7", "h"],
  ["25", "h"],
  // The mouse and the focus, in their many ways.
  ...["9", "1000", "1002", "1003", "1004", "1005", "1006", "1015"].map((mode) => [mode, "l"] as const),
  // Marks around what is pasted.
  ["2004", "l"],
  // The other screen. Last: what it hid comes back when all else is well.
  ["47", "l"],
  ["1047", "l"],
  ["1049", "l"],
]);

const SEQUENCE = /\x1b(?:\[\?([0-9;]{1,40})([hl])|([=>]))/g;
/** No sequence of the above is longer. */
const MAX_SEQUENCE = 45;
const KEYPAD = "keypad";
const PLAIN_TEXT = "\x1b[m";

/**
 * Follows which modes the programs behind a terminal have changed, so that they
 * can be undone where those programs do not get to it themselves.
 */
export class ScreenModes {
  readonly #changed = new Set<string>();
  /** The end of what came, where a sequence may go on. */
  #rest = "";

  /** Looks through what is written to the terminal. */
  watch(data: Uint8Array): void {
    const text = this.#rest + Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("latin1");
    for (const [, modes, direction, keypad] of text.matchAll(SEQUENCE)) {
      if (keypad) this.#note(KEYPAD, keypad === "=");
      for (const mode of modes?.split(";") ?? []) {
        if (AT_REST.has(mode)) this.#note(mode, AT_REST.get(mode) !== direction);
      }
    }
    // Seeing the last sequence once more changes nothing.
    this.#rest = text.slice(-MAX_SEQUENCE).replace(/^[^\x1b]*(?=\x1b|$)/, "");
  }

  /** What brings the terminal to rest; empty where it is. */
  undo(): string {
    if (this.#changed.size === 0) return "";
    const modes = [...AT_REST].filter(([mode]) => this.#changed.has(mode));
    const keypad = this.#changed.has(KEYPAD) ? "\x1b>" : "";
    this.#changed.clear();
    return `${PLAIN_TEXT}${keypad}${modes.map(([mode, direction]) => `\x1b[?${mode}${direction}`).join("")}`;
  }

  #note(mode: string, changed: boolean): void {
    if (changed) this.#changed.add(mode);
    else this.#changed.delete(mode);
  }
}

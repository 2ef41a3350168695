import type { Io } from "./io.ts";

/** For terminals that do not know their size. */
const USUAL_COLUMNS = 80;

/** One line on stderr that is drawn again in place. */
export class ProgressLine {
  readonly #stderr: Io["stderr"];
  #isDrawn = false;

  private constructor(stderr: Io["stderr"]) {
    this.#stderr = stderr;
  }

  /** Undefined: stderr is not a terminal, or one that cannot go back in a line. */
  static on({ stderr, env }: Pick<Io, "stderr" | "env">): ProgressLine | undefined {
    return stderr.isTTY && env.TERM !== "dumb" ? new ProgressLine(stderr) : undefined;
  }

  /**
   * Draws the line. It never fills the last column: what continues in a second row would stay there. If there is not
   * enough room, `text` is shortened, and `end` stays.
   */
  draw(text: string, end = ""): void {
    const columns = ((this.#stderr as { columns?: number }).columns || USUAL_COLUMNS) - 1;
    const room = columns - end.length;
    const shown = text.length <= room ? text : `${text.slice(0, Math.max(0, room - 1))}…`;
    this.#isDrawn = true;
    this.#stderr.write(`\r\x1b[K${(shown + end).slice(0, columns)}`);
  }

  /** Removes the line. */
  clear(): void {
    if (this.#isDrawn) this.#stderr.write("\r\x1b[K");
    this.#isDrawn = false;
  }
}

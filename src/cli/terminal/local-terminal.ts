import tty from "node:tty";
import { type Io, write } from "../io.ts";

/** The size of a terminal in characters. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** Callbacks for a terminal's events. */
interface TerminalEvents {
  /** Keys were typed. `data` is what the terminal sends for them. */
  keys(data: Buffer): void;
  resized(): void;
  /** The terminal is gone. */
  hungUp(): void;
}

/** For terminals that do not know their size. */
const USUAL_SIZE: TerminalSize = { columns: 80, rows: 24 };
const LINE_FEED = 0x0a;

/**
 * This program's terminal, lent to a program that runs elsewhere: keys are passed on raw, and output is drawn
 * unchanged.
 */
export class LocalTerminal {
  readonly #stdin: tty.ReadStream;
  readonly #stdout: tty.WriteStream;
  readonly #modes = new ScreenModes();
  #giveBack: (() => void) | undefined;
  #lastDrawn = LINE_FEED;

  private constructor(stdin: tty.ReadStream, stdout: tty.WriteStream) {
    this.#stdin = stdin;
    this.#stdout = stdout;
  }

  /** The terminal at both stdin and stdout. Undefined if one of them is not a terminal. */
  static of({ stdin, stdout }: Io): LocalTerminal | undefined {
    if (!(stdin instanceof tty.ReadStream && stdout instanceof tty.WriteStream)) return undefined;
    return new LocalTerminal(stdin, stdout);
  }

  get size(): TerminalSize {
    const { columns, rows } = this.#stdout;
    return columns > 0 && rows > 0 ? { columns, rows } : USUAL_SIZE;
  }

  /** Lends the terminal until {@link restore} or the end of the program. */
  lend(events: TerminalEvents): void {
    const stdin = this.#stdin;
    const onKeys = (data: Buffer) => events.keys(data);
    const onResize = () => events.resized();
    const onHangUp = () => events.hungUp();
    const onExit = () => this.restore();
    // On SIGQUIT Node would end without restoring the terminal.
    const onQuit = () => {
      this.restore();
      process.kill(process.pid, "SIGQUIT");
    };
    // Ctrl-Z goes to the program in the sandbox, so this signal comes from elsewhere.
    const onStop = () => {
      stdin.setRawMode(false);
      process.kill(process.pid, "SIGSTOP");
    };
    // Another program used the terminal meanwhile, and may have changed its mode and size.
    const onContinue = () => {
      stdin.setRawMode(false);
      stdin.setRawMode(true);
      events.resized();
    };
    this.#giveBack = () => {
      stdin.off("data", onKeys).off("end", onHangUp).off("error", onHangUp);
      stdin.pause();
      this.#stdout.off("resize", onResize);
      process.off("exit", onExit).off("SIGQUIT", onQuit).off("SIGTSTP", onStop).off("SIGCONT", onContinue);
      // The terminal may be gone. Then it cannot be restored.
      stdin.on("error", () => {});
      stdin.setRawMode(false);
    };
    process.once("exit", onExit).once("SIGQUIT", onQuit).on("SIGTSTP", onStop).on("SIGCONT", onContinue);
    stdin.setRawMode(true);
    stdin.on("data", onKeys).once("end", onHangUp).once("error", onHangUp);
    this.#stdout.on("resize", onResize);
  }

  /** Reads keys, or leaves them in the kernel's buffer. */
  set listening(on: boolean) {
    if (on) this.#stdin.resume();
    else this.#stdin.pause();
  }

  /** Draws output. Resolves when there is room for more. */
  async write(data: Uint8Array, signal: AbortSignal): Promise<void> {
    this.#modes.watch(data);
    this.#lastDrawn = data.at(-1) ?? this.#lastDrawn;
    await write(this.#stdout, data, signal);
  }

  /** Restores the terminal to its state before it was lent. Idempotent. */
  restore(): void {
    const giveBack = this.#giveBack;
    this.#giveBack = undefined;
    if (giveBack === undefined) return;
    const undo = this.#modes.undo();
    if (undo !== "") this.#stdout.write(undo);
    giveBack();
  }

  /** Starts a new line for a message after the restore. */
  breakLine(): void {
    if (this.#lastDrawn !== LINE_FEED) this.#stdout.write("\n");
  }
}

/** Private modes that programs change, and their normal state. `h` sets, `l` resets. */
const AT_REST: ReadonlyMap<string, "h" | "l"> = new Map([
  // Application cursor keys, line wrap, visible cursor.
  ["1", "l"],
  ["7", "h"],
  ["25", "h"],
  // Mouse and focus reports, in all variants.
  ...["9", "1000", "1002", "1003", "1004", "1005", "1006", "1015"].map((mode) => [mode, "l"] as const),
  // Bracketed paste.
  ["2004", "l"],
  // The alternate screen. Last, so that the main screen comes back after all else is reset.
  ["47", "l"],
  ["1047", "l"],
  ["1049", "l"],
]);

const SEQUENCE = /\x1b(?:\[\?([0-9;]{1,40})([hl])|([=>]))/g;
/** Longer than any sequence above. */
const MAX_SEQUENCE = 45;
const KEYPAD = "keypad";
const PLAIN_TEXT = "\x1b[m";

/**
 * Tracks the modes that programs behind a terminal have changed, so that they can be reset if the programs cannot do
 * it.
 */
export class ScreenModes {
  readonly #changed = new Set<string>();
  /** The end of the last output, which may be the start of a sequence. */
  #rest = "";

  /** Checks what is written to the terminal. */
  watch(data: Uint8Array): void {
    const text = this.#rest + Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("latin1");
    for (const [, modes, direction, keypad] of text.matchAll(SEQUENCE)) {
      if (keypad) this.#note(KEYPAD, keypad === "=");
      for (const mode of modes?.split(";") ?? []) {
        if (AT_REST.has(mode)) this.#note(mode, AT_REST.get(mode) !== direction);
      }
    }
    // Seeing the last sequence twice does no harm.
    this.#rest = text.slice(-MAX_SEQUENCE).replace(/^[^\x1b]*(?=\x1b|$)/, "");
  }

  /** The sequences that reset the terminal. Empty if nothing has changed. */
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

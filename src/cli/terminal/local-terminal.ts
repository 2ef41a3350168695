import tty from "node:tty";
import { type Io, write } from "../io.ts";

/** A terminal's size in characters. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** Listens to a terminal. */
interface TerminalEvents {
  /** Something was typed, as the terminal sends it. */
  keys(data: Buffer): void;
  resized(): void;
  /** The terminal has gone. */
  hungUp(): void;
}

/** What terminals say that do not know their size. */
const USUAL_SIZE: TerminalSize = { columns: 80, rows: 24 };
const LINE_FEED = 0x0a;

/**
 * The terminal that the program runs in, lent to one that runs elsewhere: keys
 * are taken as they are, what is written is drawn as it is.
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

  /** The terminal at both stdin and stdout; undefined where one of them is none. */
  static of({ stdin, stdout }: Io): LocalTerminal | undefined {
    if (!(stdin instanceof tty.ReadStream && stdout instanceof tty.WriteStream)) return undefined;
    return new LocalTerminal(stdin, stdout);
  }

  get size(): TerminalSize {
    const { columns, rows } = this.#stdout;
    return columns > 0 && rows > 0 ? { columns, rows } : USUAL_SIZE;
  }

  /** Lends it, until {@link restore} or the program's end, whatever brings that. */
  lend(events: TerminalEvents): void {
    const stdin = this.#stdin;
    const onKeys = (data: Buffer) => events.keys(data);
    const onResize = () => events.resized();
    const onHangUp = () => events.hungUp();
    const onExit = () => this.restore();
    // Node ends on this one without giving the terminal back.
    const onQuit = () => {
      this.restore();
      process.kill(process.pid, "SIGQUIT");
    };
    // Ctrl-Z goes to the program in the sandbox; this comes from elsewhere.
    const onStop = () => {
      stdin.setRawMode(false);
      process.kill(process.pid, "SIGSTOP");
    };
    // Another program had the terminal meanwhile, and may have changed its mode and size.
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
      // It may have gone, and cannot be given back then.
      stdin.on("error", () => {});
      stdin.setRawMode(false);
    };
    process.once("exit", onExit).once("SIGQUIT", onQuit).on("SIGTSTP", onStop).on("SIGCONT", onContinue);
    stdin.setRawMode(true);
    stdin.on("data", onKeys).once("end", onHangUp).once("error", onHangUp);
    this.#stdout.on("resize", onResize);
  }

  /** Takes keys, or lets them wait in the kernel. */
  set listening(on: boolean) {
    if (on) this.#stdin.resume();
    else this.#stdin.pause();
  }

  /** Draws; resolves when there is room for more. */
  async write(data: Uint8Array, signal: AbortSignal): Promise<void> {
    this.#modes.watch(data);
    this.#lastDrawn = data.at(-1) ?? this.#lastDrawn;
    await write(this.#stdout, data, signal);
  }

  /** Makes it what it was before it was lent. Idempotent. */
  restore(): void {
    const giveBack = this.#giveBack;
    this.#giveBack = undefined;
    if (giveBack === undefined) return;
    const undo = this.#modes.undo();
    if (undo !== "") this.#stdout.write(undo);
    giveBack();
  }

  /** Starts a new line, for a message that follows the restore. */
  breakLine(): void {
    if (this.#lastDrawn !== LINE_FEED) this.#stdout.write("\n");
  }
}

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
    // Seeing the last sequence twice changes nothing.
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

import type { InterpreterLanguage } from "../interpreter-process.ts";
import type { OutputChannel } from "../output-channel.ts";
import { PYTHON_DRIVER } from "./driver.ts";

/** What the driver tells at the end of a turn. */
export interface PythonAnswer {
  /** What the last expression is, as `repr` shows it; null where it is None, or no expression. */
  readonly result: string | null;
  readonly error: { readonly name: string; readonly value: string; readonly traceback: string } | null;
  /** PNGs in base64. */
  readonly plots: readonly string[];
  readonly pid: number;
  readonly pids: readonly number[];
}

/** How python3 is spoken to: see {@link PYTHON_DRIVER}. */
export const PYTHON: InterpreterLanguage = {
  argv: ["python3", "-c", PYTHON_DRIVER],
  boot: "",
  pipes: { stdout: "/proc/self/fd/211", stderr: "/proc/self/fd/212" },
  run: (code, nonce, channel) => request({ code }, nonce, channel),
  tellEnd: (nonce, tag, channel) => request({ tag }, nonce, channel),
  pidsOf(payload) {
    const { pid, pids } = answerOf(payload);
    return { own: pid, seen: pids };
  },
};

/** Reads what the driver told. What a program forged in its place is its own session's loss. */
export function answerOf(payload: Buffer): PythonAnswer {
  const answer: Partial<PythonAnswer> = parse(payload.toString()) ?? {};
  return { result: null, error: null, plots: [], pid: 0, pids: [], ...answer };
}

function parse(text: string): Partial<PythonAnswer> | undefined {
  try {
    return JSON.parse(text) as Partial<PythonAnswer>;
  } catch {
    return undefined;
  }
}

function request(what: object, nonce: string, { stdout, stderr }: OutputChannel): string {
  return `${JSON.stringify({ ...what, stdout, stderr })}\n${nonce}\n`;
}

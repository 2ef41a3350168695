import { z } from "zod";
import { hasFewValues } from "../../../base/json.ts";
import type { InterpreterLanguage } from "../interpreter-process.ts";
import type { OutputChannel } from "../output-channel.ts";
import { PYTHON_DRIVER } from "./driver.ts";

/** What the driver tells at the end of a execution. */
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

/** Pids and plots, far beyond what a sandbox may have; each of a forged million would take its time. */
const MAX_VALUES = 50_000;

const answer = z.object({
  result: z.string().nullable().catch(null),
  error: z.object({ name: z.string(), value: z.string(), traceback: z.string() }).nullable().catch(null),
  plots: z.array(z.string()).catch([]),
  pid: z.number().catch(0),
  pids: z.array(z.number()).catch([]),
});

/** Reads what the driver told. What a program forged in its place is its own session's loss. */
export function answerOf(payload: Buffer): PythonAnswer {
  return answer.parse(parse(payload) ?? {});
}

function parse(payload: Buffer): object | undefined {
  if (!hasFewValues(payload, MAX_VALUES)) return undefined;
  try {
    const told: unknown = JSON.parse(payload.toString());
    return typeof told === "object" && told !== null && !Array.isArray(told) ? told : undefined;
  } catch {
    return undefined;
  }
}

function request(what: object, nonce: string, { stdout, stderr }: OutputChannel): string {
  return `${JSON.stringify({ ...what, stdout, stderr })}\n${nonce}\n`;
}

import { z } from "zod";
import { hasFewValues } from "../../../base/json.ts";
import {
  type Attachment,
  defineTool,
  type SessionType,
  succeeded,
  TOOL_CODE,
  type ToolCall,
  type ToolResult,
} from "../../backend.ts";
import { listOf, secondsToMs, timeoutParam } from "../common.ts";
import { InterpreterBackend, interpreterConfig, startInterpreter } from "../interpreter.ts";
import type { ExecutionOutcome, InterpreterHost, InterpreterLanguage } from "../interpreter-process.ts";
import type { OutputChannel } from "../output-channel.ts";
import { CUT, MAX_TEXT, PYTHON_DRIVER } from "./driver.ts";

const runParams = z.strictObject({
  code: z.string().describe("Python code: statements; the last one may be an expression."),
  timeout: timeoutParam,
});

const run = defineTool({
  name: "run",
  description:
    "Runs Python code in the session's interpreter. Variables and imports stay for the next call. `await` works outside of " +
    "functions; background tasks run only while a call awaits something. Returns stdout, stderr, " +
    "result (the last expression's repr, or null), error ({name, value, traceback} or null), timed_out, truncated (whether a part of these is missing), " +
    "session_lost (the interpreter ended) and session_restarted (it was lost before this call, and restarted). " +
    "Open matplotlib figures come as PNG attachments and are closed.",
  params: runParams,
  isCommand: true,
  timeoutMs: ({ timeout }) => secondsToMs(timeout),
  run: (python: Python, { code }, call) => python.run(code, call),
});

/** The type `python`: a persistent interpreter. */
export function pythonType(host: InterpreterHost): SessionType {
  return {
    name: "python",
    description: "A Python interpreter that stays: its variables, imports and threads.",
    config: interpreterConfig,
    tools: [run],
    sandbox: {},
    takesSecrets: true,
    initialize: async (place, given, signal) => {
      const config = given as z.output<typeof interpreterConfig>;
      // Without a screen, matplotlib must draw into memory.
      const env = { MPLBACKEND: "Agg" };
      return new Python(await startInterpreter(host, PYTHON, place, config, env, signal));
    },
  };
}

class Python extends InterpreterBackend {
  async run(code: string, call: ToolCall): Promise<ToolResult> {
    const { outcome, data, attachments } = await this.execute(code, call);
    const timedOut = outcome.interrupted;
    const lost = outcome.kind === "gone";
    const { plots, ...texts } = answerTo(outcome);
    const result = texts.result && (await this.#shown(texts.result));
    const error = texts.error && {
      name: await this.#shown(texts.error.name),
      value: await this.#shown(texts.error.value),
      traceback: await this.#shown(texts.error.traceback),
    };
    const more = {
      attachments: [...attachments, ...plots.map(plotOf)],
      programFailed: error !== null,
      ...(lost && { code: TOOL_CODE.failed, message: error?.value ?? "" }),
      ...(timedOut && {
        code: TOOL_CODE.timeout,
        message: `The code exceeded its timeout, and was ${lost ? "killed with its interpreter" : "interrupted"}.`,
      }),
    };
    return succeeded(
      {
        ...data,
        truncated: data.truncated || [texts.result, ...Object.values(texts.error ?? {})].some(isCut),
        result,
        error,
        timed_out: timedOut,
        session_lost: lost,
        session_restarted: call.restarted,
      },
      more,
    );
  }

  async #shown(text: string): Promise<string> {
    return isCut(text) ? (await this.redacted(text.slice(0, -CUT.length), true)) + CUT : this.redacted(text);
  }
}

/** Whether a text of the driver's report was longer. */
function isCut(text: string | null): boolean {
  return text !== null && text.length >= MAX_TEXT + CUT.length && text.endsWith(CUT);
}

function answerTo(outcome: ExecutionOutcome): Pick<PythonAnswer, "result" | "error" | "plots"> {
  if (outcome.kind === "done") return answerOf(outcome.end.payload);
  const value = `The interpreter ended with exit code ${outcome.exitCode}.`;
  return { result: null, error: { name: "InterpreterExit", value, traceback: "" }, plots: [] };
}

function plotOf(plot: string, index: number): Attachment {
  return { name: `plot_${index + 1}`, mediaType: "image/png", content: Buffer.from(plot, "base64") };
}

/** The driver's report at the end of an execution. */
interface PythonAnswer {
  /** `repr` of the last expression. Null if that is None, or if there is no expression. */
  readonly result: string | null;
  readonly error: { readonly name: string; readonly value: string; readonly traceback: string } | null;
  /** PNGs in base64. */
  readonly plots: readonly string[];
  readonly pid: number;
  readonly pids: readonly number[];
}

/** The protocol with python3: see {@link PYTHON_DRIVER}. */
const PYTHON: InterpreterLanguage = {
  argv: ["python3", "-c", PYTHON_DRIVER],
  boot: "",
  pipes: { stdout: "/proc/self/fd/211", stderr: "/proc/self/fd/212" },
  // Most of the payload are plots.
  maxPayloadBytes: 12 * 1024 * 1024,
  run: (code, nonce, channel) => request({ code }, nonce, channel),
  printEnd: (nonce, tag, channel) => request({ tag }, nonce, channel),
  pidsOf(payload) {
    // They come last. Before them may be megabytes of plots.
    const at = payload.lastIndexOf('"pid":');
    if (at < 0) return { own: 0, seen: [] };
    const { pid, pids } = answerOf(Buffer.concat([Buffer.from("{"), payload.subarray(at)]));
    return { own: pid, seen: pids };
  },
};

/** Limits pids and plots, far above what a sandbox can have: parsing a forged million would take long. */
const MAX_VALUES = 50_000;

/** The driver limits characters of Unicode, some of which count twice here. */
const text = z.string().max(2 * (MAX_TEXT + CUT.length));

const answer = z.object({
  result: text.nullable().catch(null),
  error: z.object({ name: text, value: text, traceback: text }).nullable().catch(null),
  plots: listOf(z.string()).catch([]),
  pid: z.number().catch(0),
  pids: listOf(z.number()).catch([]),
});

/** Parses the driver's report. A program that forges it harms only its own session. */
export function answerOf(payload: Buffer): PythonAnswer {
  return answer.parse(parse(payload) ?? {});
}

function parse(payload: Buffer): object | undefined {
  if (!hasFewValues(payload, MAX_VALUES)) return undefined;
  try {
    const parsed: unknown = JSON.parse(payload.toString());
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function request(what: object, nonce: string, { stdout, stderr }: OutputChannel): string {
  return `${JSON.stringify({ ...what, stdout, stderr })}\n${nonce}\n`;
}

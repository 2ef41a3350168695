import { z } from "zod";
import { abortError } from "../../../base/errors.ts";
import { hasFewValues } from "../../../base/json.ts";
import { resolveWorkingDir } from "../../../processes/shell/working-dir.ts";
import {
  type Attachment,
  defineTool,
  type SessionBackend,
  type SessionType,
  succeeded,
  TOOL_CODE,
  type ToolCall,
  type ToolResult,
} from "../../backend.ts";
import { CollectedOutput } from "../collected-output.ts";
import { baseConfig, cwdConfig, envConfig, secondsToMs, timeoutParam } from "../common.ts";
import {
  type ExecutionOutcome,
  type InterpreterHost,
  type InterpreterLanguage,
  InterpreterProcess,
} from "../interpreter-process.ts";
import type { OutputChannel } from "../output-channel.ts";
import { PYTHON_DRIVER } from "./driver.ts";

const config = baseConfig.extend({ cwd: cwdConfig.optional(), env: envConfig.optional() });

const runParams = z.strictObject({
  code: z.string().describe("Python code: statements, and as the last one perhaps an expression."),
  timeout: timeoutParam,
});

const run = defineTool({
  name: "run",
  description:
    "Runs Python code in the session's interpreter. Variables and imports stay for the next call. Returns stdout, stderr, " +
    "result (the last expression's repr, or null), error ({name, value, traceback} or null), timed_out, truncated, " +
    "session_lost (the interpreter ended) and session_restarted (it was lost before this call, and began anew). " +
    "Open matplotlib figures come as PNG attachments and are closed.",
  params: runParams,
  timeoutMs: ({ timeout }) => secondsToMs(timeout),
  run: (python: Python, { code }, call) => python.run(code, call),
});

/** The type `python`: an interpreter that stays. */
export function pythonType(host: InterpreterHost): SessionType {
  return {
    name: "python",
    description: "A Python interpreter that stays: its variables, imports and threads.",
    config,
    tools: [run],
    sandbox: {},
    initialize: async ({ sandbox, sessionId }, given, signal) => {
      const { cwd, env } = given as z.output<typeof config>;
      const place = {
        sessionId,
        // Without a screen, a figure is drawn into memory.
        env: { ...sandbox.spec.env, MPLBACKEND: "Agg", ...env },
        workingDir: resolveWorkingDir(sandbox.spec.workingDir, cwd),
      };
      return new Python(await InterpreterProcess.start(host, PYTHON, sandbox, place, signal));
    },
  };
}

class Python implements SessionBackend {
  readonly #process: InterpreterProcess;

  constructor(process: InterpreterProcess) {
    this.#process = process;
  }

  get alive(): boolean {
    return this.#process.alive;
  }

  async run(code: string, call: ToolCall): Promise<ToolResult> {
    const collected = new CollectedOutput(call);
    const outcome = await this.#process.run(code, {
      stop: AbortSignal.any([call.signal, call.timeout]),
      output: (stream, chunk) => collected.write(stream, chunk),
    });
    if (call.signal.aborted) throw abortError(call.signal);
    const timedOut = outcome.interrupted;
    const lost = outcome.kind === "gone";
    const { result, error, plots } = answerTo(outcome);
    const { data, attachments } = collected.result();
    const more = {
      attachments: [...attachments, ...plots.map(plotOf)],
      programFailed: error !== null,
      ...(lost && { code: TOOL_CODE.failed, message: error?.value ?? "" }),
      ...(timedOut && {
        code: TOOL_CODE.timeout,
        message: `The code ran longer than it may, and was ${lost ? "killed with its interpreter" : "interrupted"}.`,
      }),
    };
    return succeeded(
      {
        ...data,
        result,
        error,
        timed_out: timedOut,
        session_lost: lost,
        session_restarted: call.restarted,
      },
      more,
    );
  }

  cleanup(sandboxEnds: boolean): Promise<void> {
    return this.#process.close(sandboxEnds);
  }
}

function answerTo(outcome: ExecutionOutcome): Pick<PythonAnswer, "result" | "error" | "plots"> {
  if (outcome.kind === "done") return answerOf(outcome.end.payload);
  const value = `The interpreter ended with exit code ${outcome.exitCode}.`;
  return { result: null, error: { name: "InterpreterExit", value, traceback: "" }, plots: [] };
}

function plotOf(plot: string, index: number): Attachment {
  return { name: `plot_${index + 1}`, mediaType: "image/png", content: Buffer.from(plot, "base64") };
}

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

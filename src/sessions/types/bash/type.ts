import { z } from "zod";
import { abortError } from "../../../base/errors.ts";
import { resolveWorkingDir } from "../../../processes/shell/job.ts";
import {
  defineTool,
  type SessionBackend,
  type SessionType,
  succeeded,
  TOOL_CODE,
  type ToolCall,
  type ToolResult,
} from "../../backend.ts";
import { CollectedOutput } from "../collected-output.ts";
import { baseConfig, cwdConfig, envConfig, secondsToMs, timeoutParam, withoutNul } from "../common.ts";
import { type InterpreterHost, InterpreterProcess } from "../interpreter-process.ts";
import { BASH, cwdOf } from "./language.ts";

const config = baseConfig.extend({ cwd: cwdConfig.optional(), env: envConfig.optional() });

const runParams = z.strictObject({
  command: z.string().describe("What bash is to run: one or more lines."),
  timeout: timeoutParam,
});

const run = defineTool({
  name: "run",
  description:
    "Runs a command in the session's bash. Directory, variables, functions and background jobs stay for the next call. " +
    "Returns stdout, stderr, exit_code, cwd, timed_out, truncated, session_lost (the command ended the shell) and " +
    "session_restarted (the shell was lost before this call, and began anew). stdin is empty. What a command leaves " +
    "running goes on; what that writes later is dropped. Past 16 of these that hold the session's output, the output of " +
    "the newest is closed, and it ends by SIGPIPE when it writes: start servers with their output in a file.",
  params: runParams,
  timeoutMs: ({ timeout }) => secondsToMs(timeout),
  run: (bash: Bash, { command }, call) => bash.run(withoutNul("params.command", command), call),
});

/** The type `bash`: a shell that stays. */
export function bashType(host: InterpreterHost): SessionType {
  return {
    name: "bash",
    description: "A bash that stays: its directory, variables, functions and background jobs.",
    config,
    tools: [run],
    sandbox: {},
    initialize: async ({ sandbox, sessionId }, given, signal) => {
      const { cwd, env } = given as z.output<typeof config>;
      const place = {
        sessionId,
        env: { ...sandbox.spec.env, ...env },
        workingDir: resolveWorkingDir(sandbox.spec.workingDir, cwd),
      };
      return new Bash(await InterpreterProcess.start(host, BASH, sandbox, place, signal));
    },
  };
}

class Bash implements SessionBackend {
  readonly #process: InterpreterProcess;
  #cwd = "";

  constructor(process: InterpreterProcess) {
    this.#process = process;
  }

  get alive(): boolean {
    return this.#process.alive;
  }

  async run(command: string, call: ToolCall): Promise<ToolResult> {
    const collected = new CollectedOutput(call);
    const outcome = await this.#process.run(command, {
      stop: AbortSignal.any([call.signal, call.timeout]),
      output: (stream, chunk) => collected.write(stream, chunk),
    });
    if (call.signal.aborted) throw abortError(call.signal);
    const timedOut = outcome.interrupted;
    if (outcome.kind === "done") this.#cwd = cwdOf(outcome.end.payload);
    const exitCode = outcome.kind === "gone" ? outcome.exitCode : exitCodeOf(outcome.end.status, timedOut);
    const { data, attachments } = collected.result();
    return succeeded(
      {
        ...data,
        exit_code: exitCode,
        cwd: this.#cwd,
        timed_out: timedOut,
        session_lost: outcome.kind === "gone",
        session_restarted: call.restarted,
      },
      {
        ...(timedOut && {
          code: TOOL_CODE.timeout,
          message: `The command ran longer than it may, and was ${outcome.kind === "gone" ? "killed with its shell" : "interrupted"}.`,
        }),
        attachments,
        programFailed: exitCode !== 0,
      },
    );
  }

  cleanup(sandboxEnds: boolean): Promise<void> {
    return this.#process.close(sandboxEnds);
  }
}

/** What an interrupted command did not tell is what a shell says of one. */
function exitCodeOf(status: string, interrupted: boolean): number {
  return status === "" && interrupted ? 130 : Number(status);
}

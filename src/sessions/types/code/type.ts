import { z } from "zod";
import { abortError } from "../../../base/errors.ts";
import { OWN_COMMAND, type ProcessManager } from "../../../processes/manager.ts";
import {
  defineTool,
  type SessionBackend,
  type SessionHost,
  type SessionType,
  succeeded,
  TOOL_CODE,
  type ToolCall,
  type ToolResult,
} from "../../backend.ts";
import { CollectedOutput } from "../collected-output.ts";
import { baseConfig, secondsToMs, timeoutParam, withoutNul } from "../common.ts";

/**
 * Commands that read the program from stdin, because argument lists have a length limit. The program itself then gets
 * EOF on stdin.
 */
const INTERPRETERS = {
  python: ["python3", "-"],
  javascript: ["node", "-"],
  bash: ["bash", "-c", "exec bash /proc/self/fd/3 3<&0 </dev/null"],
} as const;

const executeParams = z.strictObject({
  code: z.string().describe("The program."),
  language: z.enum(["python", "javascript", "bash"]).describe("Its language."),
  timeout: timeoutParam,
});

const execute = defineTool({
  name: "execute",
  description:
    "Runs a program in a process of its own: nothing but files stays for the next call. Returns stdout, stderr, " +
    "exit_code, timed_out and truncated. python needs python3 in the sandbox's image, javascript needs node.",
  params: executeParams,
  timeoutMs: ({ timeout }) => secondsToMs(timeout),
  run: (code: Code, params, call) => code.execute(params, call),
});

/** The type `code`: programs that run on their own, without state between them. */
export function codeType(processes: ProcessManager): SessionType {
  return {
    name: "code",
    description: "Runs programs, each in a process of its own.",
    config: baseConfig,
    tools: [execute],
    sandbox: {},
    takesSecrets: true,
    initialize: async (host) => new Code(processes, host),
  };
}

/** A shell's exit code if the program does not exist. */
const NO_PROGRAM = 127;

class Code implements SessionBackend {
  readonly alive = true;
  readonly #processes: ProcessManager;
  readonly #host: SessionHost;

  constructor(processes: ProcessManager, host: SessionHost) {
    this.#processes = processes;
    this.#host = host;
  }

  async execute(params: z.output<typeof executeParams>, call: ToolCall): Promise<ToolResult> {
    const { code, language } = params;
    const collected = new CollectedOutput(call);
    let exitCode = -1;
    let message = "";
    let timedOut = false;
    const events = this.#processes.exec(
      {
        ...OWN_COMMAND,
        sandbox: this.#host.name,
        command: { kind: "argv", args: INTERPRETERS[language] },
        secretEnv: this.#host.secrets?.env ?? {},
        redactSecrets: this.#host.secrets?.redact ?? false,
        timeoutMs: call.timeoutMs,
        stdin: Buffer.from(withoutNul("params.code", code)),
      },
      call.signal,
    );
    for await (const event of events) {
      if (event.type === "output") {
        await collected.write(event.stream, Buffer.from(event.data));
      } else if (event.type === "gap") collected.skip(event.stream, event.to - event.from);
      else if (event.type === "exited") {
        ({ exitCode, message } = event.status);
        timedOut = event.status.cause === "TIMED_OUT";
      }
    }
    if (call.signal.aborted) throw abortError(call.signal);
    const { data, attachments } = collected.result();
    return succeeded(
      { ...data, exit_code: exitCode, timed_out: timedOut },
      {
        attachments,
        programFailed: exitCode !== 0,
        ...(exitCode === NO_PROGRAM && {
          code: TOOL_CODE.failed,
          message: `The sandbox's image has no ${INTERPRETERS[language][0]}, or the program ended with exit code ${NO_PROGRAM}.`,
        }),
        ...(exitCode === -1 && { code: TOOL_CODE.failed, message }),
        ...(timedOut && {
          code: TOOL_CODE.timeout,
          message: "The program exceeded its timeout, and was killed.",
        }),
      },
    );
  }

  async cleanup(): Promise<void> {}
}

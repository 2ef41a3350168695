import type { z } from "zod";
import { abortError } from "../../base/errors.ts";
import type { JsonObject } from "../../base/json.ts";
import { resolveWorkingDir, withoutVariables } from "../../processes/shell/job.ts";
import type { Attachment, SessionBackend, SessionHost, ToolCall } from "../backend.ts";
import { CollectedOutput } from "./collected-output.ts";
import { baseConfig, cwdConfig, envConfig } from "./common.ts";
import {
  type ExecutionOutcome,
  type InterpreterHost,
  type InterpreterLanguage,
  InterpreterProcess,
} from "./interpreter-process.ts";

/** The config of a bash or python session. */
export const interpreterConfig = baseConfig.extend({ cwd: cwdConfig.optional(), env: envConfig.optional() });

/** The result of running one call's code. */
interface Executed {
  readonly outcome: ExecutionOutcome;
  /** `stdout`, `stderr`, and what is missing from them. */
  readonly data: JsonObject;
  readonly attachments: readonly Attachment[];
}

/** Starts the interpreter of a session. @param env overrides the sandbox's variables; the config's override it. */
export function startInterpreter(
  host: InterpreterHost,
  language: InterpreterLanguage,
  { sandbox, sessionId, secrets }: SessionHost,
  config: z.output<typeof interpreterConfig>,
  env: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<InterpreterProcess> {
  const place = {
    sessionId,
    env: { ...sandbox.spec.env, ...env, ...config.env },
    secretEnv: { ...withoutVariables(sandbox.spec.secretEnv, config.env ?? {}), ...secrets?.env },
    redactSecrets: secrets?.redact ?? false,
    workingDir: resolveWorkingDir(sandbox.spec.workingDir, config.cwd),
  };
  return InterpreterProcess.start(host, language, sandbox, place, signal);
}

/** A backend that runs code in an interpreter, one call after another. */
export abstract class InterpreterBackend implements SessionBackend {
  readonly #process: InterpreterProcess;

  constructor(process: InterpreterProcess) {
    this.#process = process;
  }

  get alive(): boolean {
    return this.#process.alive;
  }

  cleanup(sandboxEnds: boolean): Promise<void> {
    return this.#process.close(sandboxEnds);
  }

  /** Removes secrets from what it returns besides the output, if the session asked for that. */
  protected redacted(text: string, isCut = false): Promise<string> {
    return this.#process.redacted(text, isCut);
  }

  protected async execute(code: string, call: ToolCall): Promise<Executed> {
    const collected = new CollectedOutput(call);
    const outcome = await this.#process.run(code, {
      stop: AbortSignal.any([call.signal, call.timeout]),
      output: (stream, chunk) => collected.write(stream, chunk),
    });
    if (call.signal.aborted) throw abortError(call.signal);
    return { outcome, ...collected.result() };
  }
}

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type {
  AttachProcessRequest,
  AttachProcessResponseSchema,
  ExecRequest,
  ExecResponseSchema,
  GetProcessResponseSchema,
  ListProcessesRequest,
  ListProcessesResponseSchema,
  ProcessService,
  ResizeTerminalRequest,
  RunCommandRequest,
  RunCommandResponseSchema,
  SignalProcessRequest,
  WriteStdinRequest,
} from "../../gen/ts/berth/v1/process_pb.js";
import { invalidArgument } from "../base/errors.ts";
import type { CommandRequest, ProcessManager } from "../processes/manager.ts";
import { ownerOf } from "../server/call.ts";
import type { RequestLog } from "../state/request-log.ts";
import {
  fromWireCommand,
  fromWireOnDisconnect,
  fromWireSize,
  fromWireTerminal,
  toWireEvent,
  toWireGap,
  toWireProcess,
  toWireStatus,
} from "./convert/process.ts";
import {
  callerId,
  checkText,
  durationToMs,
  environment,
  integer,
  optionalCallerId,
  positive,
  requestKey,
  sandboxName,
  secretReferences,
} from "./validate/fields.ts";
import { nextPageToken, pageSlice } from "./validate/page.ts";

const DEFAULT_MAX_OUTPUT_BYTES = 1024 * 1024;
const MAX_OUTPUT_BYTES_LIMIT = 16 * 1024 * 1024;
const LAST_SIGNAL = 64;

export interface ProcessHandlerParts {
  readonly processes: ProcessManager;
  readonly requests: RequestLog;
}

/** The handlers of `berth.v1.ProcessService`. They validate, convert and delegate. */
export class ProcessHandler implements ServiceImpl<typeof ProcessService> {
  readonly #processes: ProcessManager;
  readonly #requests: RequestLog;

  constructor({ processes, requests }: ProcessHandlerParts) {
    this.#processes = processes;
    this.#requests = requests;
  }

  async *exec(
    request: ExecRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof ExecResponseSchema>> {
    const limit = integer("output_limit_bytes", request.outputLimitBytes, { min: 0 });
    const run: CommandRequest = {
      ...commonOf(request, context),
      terminal: fromWireTerminal(request.terminal),
      keepStdinOpen: request.keepStdinOpen,
      onDisconnect: fromWireOnDisconnect(request.onDisconnect),
      disconnectGraceMs: durationToMs("disconnect_grace", request.disconnectGrace) ?? 0,
      outputLimitBytes: limit === 0 ? undefined : limit,
      ...requestKey(context, request),
    };
    for await (const event of this.#processes.exec(run, context.signal)) yield toWireEvent(event);
  }

  async runCommand(
    request: RunCommandRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof RunCommandResponseSchema>> {
    const asked = integer("max_output_bytes", request.maxOutputBytes, {
      min: 0,
      max: MAX_OUTPUT_BYTES_LIMIT,
    });
    const run: CommandRequest = {
      ...commonOf(request, context),
      terminal: undefined,
      keepStdinOpen: false,
      // A retry gets its result: see ADR 0032.
      onDisconnect: request.requestId === "" ? "KILL" : "DETACH",
      disconnectGraceMs: 0,
      outputLimitBytes: undefined,
      ...requestKey(context, request),
    };
    const done = await this.#processes.run(run, asked || DEFAULT_MAX_OUTPUT_BYTES, context.signal);
    const stdout = done.stdout.result();
    const stderr = done.stderr.result();
    return {
      stdout: stdout.data,
      stderr: stderr.data,
      exitStatus: toWireStatus(done.status),
      truncated: stdout.gap !== undefined || stderr.gap !== undefined,
      stdoutGap: stdout.gap && toWireGap("stdout", stdout.gap),
      stderrGap: stderr.gap && toWireGap("stderr", stderr.gap),
      processId: done.processId,
    };
  }

  async *attachProcess(
    request: AttachProcessRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof AttachProcessResponseSchema>> {
    const processId = callerId("process_id", request.processId);
    const { recoveries } = request;
    const from = {
      stdout: integer("stdout_offset", request.stdoutOffset, { min: 0 }),
      stderr: integer("stderr_offset", request.stderrOffset, { min: 0 }),
      recoveries: recoveries === undefined ? undefined : integer("recoveries", recoveries, { min: 0 }),
    };
    const events = this.#processes.attach(ownerOf(context), processId, from, context.signal);
    for await (const event of events) yield toWireEvent(event);
  }

  async writeStdin(request: WriteStdinRequest, context: HandlerContext): Promise<{ offset: bigint }> {
    const process = this.#process(request, context);
    const offset = integer("offset", request.offset, { min: 0 });
    const key = requestKey(context, request);
    const { data, close } = request;
    const next = await this.#requests.run(key, context.signal, (signal) =>
      process.writeStdin(offset, data, close, signal),
    );
    return { offset: BigInt(next) };
  }

  async signalProcess(
    request: SignalProcessRequest,
    context: HandlerContext,
  ): Promise<Record<string, never>> {
    const process = this.#process(request, context);
    if (request.signal < 1 || request.signal > LAST_SIGNAL) {
      throw invalidArgument(
        "signal",
        `${request.signal} is not between 1 and ${LAST_SIGNAL}. SIGTERM is 15, SIGKILL is 9.`,
      );
    }
    const key = requestKey(context, request);
    await this.#requests.run(key, context.signal, () => process.signal(request.signal));
    return {};
  }

  async resizeTerminal(
    request: ResizeTerminalRequest,
    context: HandlerContext,
  ): Promise<Record<string, never>> {
    const process = this.#process(request, context);
    const size = fromWireSize("", request.columns, request.rows);
    const key = requestKey(context, request);
    await this.#requests.run(key, context.signal, () => process.resize(size));
    return {};
  }

  getProcess(
    request: { processId: string },
    context: HandlerContext,
  ): MessageInitShape<typeof GetProcessResponseSchema> {
    const processId = callerId("process_id", request.processId);
    return { process: toWireProcess(this.#processes.get(ownerOf(context), processId)) };
  }

  async listProcesses(
    request: ListProcessesRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ListProcessesResponseSchema>> {
    const sandbox = sandboxName(context, request);
    const { items, next } = await this.#processes.list(sandbox, request.showEnded, pageSlice(request));
    return { processes: items.map(toWireProcess), nextPageToken: nextPageToken(next) };
  }

  #process(request: { processId: string }, context: HandlerContext) {
    return this.#processes.get(ownerOf(context), callerId("process_id", request.processId));
  }
}

/** What Exec and RunCommand have in common. */
function commonOf(request: ExecRequest | RunCommandRequest, context: HandlerContext) {
  return {
    sandbox: sandboxName(context, request),
    command: fromWireCommand(request.command),
    env: environment("env", request.env),
    secretEnv: secretReferences("secret_env", request.secretEnv),
    redactSecrets: request.redactSecrets,
    workingDir: checkText("working_dir", request.workingDir, 4096) || undefined,
    user: checkText("user", request.user, 256) || undefined,
    timeoutMs: positive("timeout", durationToMs("timeout", request.timeout)),
    stdin: request.stdin,
    runId: optionalCallerId("run_id", request.runId) ?? "",
  };
}

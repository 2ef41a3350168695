import { CommandResult } from "./command-result.ts";
import { allPages, type CallSettings, type Connection, newRequestId } from "./connection.ts";
import {
  command,
  content,
  duration,
  exitStatus,
  gap,
  present,
  processInfo,
  resourceUsage,
  sandboxInfo,
  variables,
  whole,
} from "./convert.ts";
import { BerthError } from "./errors.ts";
import { Files } from "./files.ts";
import { DEFAULT_OUTPUT_BYTES, type OutputCallbacks, PIECE_BYTES, Process } from "./process.ts";
import type { Command, Content, ProcessInfo, ResourceUsage, SandboxInfo } from "./types.ts";
import { OnDisconnect } from "./v1/process_pb.js";
import type { Sandbox as SandboxMessage } from "./v1/sandbox_pb.js";

const PAGE = 1000;
/** How long a command waits for its caller to reconnect. */
const RECONNECT_MS = 10_000;

/** The most stdin in the message that starts a command, which has room for the longest command and environment too. */
const MOST_STDIN = 2 * 1024 * 1024;

/** How a command is run. */
export interface CommandOptions extends CallSettings {
  /** Environment; it overrides the sandbox's. Variables that are undefined are left out. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Variables, each with the name of the service's secret that is its value. */
  readonly secretEnv?: Readonly<Record<string, string>> | undefined;
  /** Whether to replace those values by "[redacted]" in what it writes. Default false. */
  readonly redactSecrets?: boolean | undefined;
  /** Where it starts: absolute, or relative to the sandbox's. */
  readonly workingDir?: string | undefined;
  /** Who it runs as: a name or "uid[:gid]". Default: the sandbox's. */
  readonly user?: string | undefined;
  /** How long it may run. Default: the sandbox's (300,000). */
  readonly timeoutMs?: number | undefined;
  /** Of any length. More than 2 MiB are written while the command runs. */
  readonly stdin?: Content | undefined;
  /** The run that it belongs to. */
  readonly runId?: string | undefined;
  /** An id that you choose; within 24 hours, the same id means the same command. */
  readonly requestId?: string | undefined;
}

/** How a command is run whose output is streamed. */
export interface ExecOptions extends CommandOptions {
  /** Whether stdin stays open for `write`. Default false. */
  readonly keepStdinOpen?: boolean | undefined;
  /** Gives it a terminal of this size, in characters. */
  readonly terminal?: { readonly columns: number; readonly rows: number } | undefined;
  /** Kills it when it writes more. Default: no limit. */
  readonly outputLimitBytes?: number | undefined;
  /** Whether it continues when its reader leaves. Default false. */
  readonly detach?: boolean | undefined;
  /** How long the client may take to restore a broken connection before the command ends. Default 10,000. */
  readonly reconnectMs?: number | undefined;
}

/** How a command is run to its end. */
export interface RunCommandOptions extends CommandOptions, OutputCallbacks {
  /** Maximum bytes kept of each stream; of a longer one, its head and tail. Default, also for 0: 1 MiB. At most 16 MiB. */
  readonly maxOutputBytes?: number | undefined;
  /** Throws CommandError unless the command ends with exit code 0. */
  readonly check?: boolean | undefined;
}

/**
 * A sandbox: a place to run commands and keep files. Created by `berth.sandboxes`. With `await using` it is deleted at
 * the end of the block.
 *
 * It always means this sandbox: once another one has the same id, calls throw SANDBOX_REPLACED, and `delete` does
 * nothing. `berth.sandboxes.get` returns the other one.
 */
export class Sandbox implements AsyncDisposable {
  /** Its data when last read; see {@link refresh}. */
  info: SandboxInfo;
  /** Its files. */
  readonly files: Files;
  readonly #connection: Connection;

  constructor(connection: Connection, message: SandboxMessage | undefined) {
    this.#connection = connection;
    this.info = sandboxInfo(message);
    this.files = new Files(connection, this.#name);
  }

  /** Its id. */
  get sandboxId(): string {
    return this.info.sandboxId;
  }

  /**
   * A command whose output is streamed: iterate over it, or start it; see {@link Process}. Nothing runs before that.
   *
   * The start throws SANDBOX_NOT_FOUND, SANDBOX_NOT_RUNNING, INVALID_ARGUMENT for a working directory or user that does
   * not exist, or TOO_MANY_OPERATIONS. A program that does not exist is a result: exit code 127.
   */
  exec(line: Command, options: ExecOptions = {}): Process {
    const { reconnectMs = RECONNECT_MS, detach = false, terminal, keepStdinOpen = false, signal } = options;
    const fields = this.#commandFields(line, options);
    const isLong = fields.stdin.length > MOST_STDIN;
    const rest = isLong
      ? { data: fields.stdin.subarray(PIECE_BYTES), close: !keepStdinOpen && !terminal }
      : undefined;
    const exec = {
      ...fields,
      // A copy, so that it does not keep the rest in memory.
      ...(isLong && { stdin: new Uint8Array(fields.stdin.subarray(0, PIECE_BYTES)) }),
      keepStdinOpen: keepStdinOpen || isLong,
      ...(terminal && { terminal: { columns: terminal.columns, rows: terminal.rows } }),
      onDisconnect: detach ? OnDisconnect.DETACH : OnDisconnect.KILL,
      disconnectGrace: detach ? undefined : duration(reconnectMs),
      outputLimitBytes: whole("outputLimitBytes", options.outputLimitBytes ?? 0),
      // If the connection breaks before the command is known to have started, it still starts only once.
      requestId: options.requestId ?? newRequestId(),
    };
    return new Process(this.#connection, { exec, rest }, reconnectMs, signal);
  }

  /**
   * Runs a command to its end and returns its result.
   *
   * If the call is aborted or its connection breaks, the command ends. With a `requestId` the command continues, and
   * the same call again gets its result. With a callback, or more than 2 MiB of stdin, the call is an `exec`, and
   * survives a broken connection.
   */
  async run(line: Command, options: RunCommandOptions = {}): Promise<CommandResult> {
    const { onStdout, onStderr, maxOutputBytes, check = false, ...rest } = options;
    const stdin = content(options.stdin ?? "");
    const isLong = stdin.length > MOST_STDIN;
    const settings = { ...rest, stdin, detach: isLong && options.requestId !== undefined };
    const result =
      onStdout || onStderr || isLong
        ? await this.exec(line, settings).result({ onStdout, onStderr, maxOutputBytes })
        : await this.#run(line, { ...options, stdin });
    return check ? result.check() : result;
  }

  async #run(line: Command, options: RunCommandOptions): Promise<CommandResult> {
    const { maxOutputBytes = DEFAULT_OUTPUT_BYTES, requestId = "", signal } = options;
    const request = {
      ...this.#commandFields(line, options),
      maxOutputBytes: whole("maxOutputBytes", maxOutputBytes),
      requestId,
    };
    const call = (settings: object) => this.#connection.processes.runCommand(request, settings);
    const answer = await (requestId === ""
      ? this.#connection.once(call, signal)
      : this.#connection.again(call, signal));
    return new CommandResult({
      stdoutBytes: answer.stdout,
      stderrBytes: answer.stderr,
      stdoutGap: gap(answer.stdoutGap),
      stderrGap: gap(answer.stderrGap),
      status: exitStatus(present(answer.exitStatus)),
      processId: answer.processId,
    });
  }

  /**
   * Reads the output of a command, from an offset and then live, even after its end (for 24 hours). The command
   * continues when its reader leaves. Throws PROCESS_NOT_FOUND, OFFSET_OUT_OF_RANGE.
   */
  attach(processId: string, options: AttachOptions = {}): Process {
    const { stdoutOffset = 0, stderrOffset = 0, recoveries, reconnectMs = RECONNECT_MS, signal } = options;
    const offsets = { stdoutOffset: BigInt(stdoutOffset), stderrOffset: BigInt(stderrOffset) };
    const attach = { processId, ...offsets, ...(recoveries !== undefined && { recoveries }) };
    return new Process(this.#connection, { attach }, reconnectMs, signal);
  }

  /** The data of a command's process. Throws PROCESS_NOT_FOUND. */
  async process(processId: string, { signal }: CallSettings = {}): Promise<ProcessInfo> {
    const call = (options: object) => this.#connection.processes.getProcess({ processId }, options);
    return processInfo((await this.#connection.again(call, signal)).process);
  }

  /** Its running commands, newest first; with `showEnded` also those that have ended. */
  processes({
    showEnded = false,
    signal,
  }: CallSettings & { readonly showEnded?: boolean } = {}): Promise<ProcessInfo[]> {
    return allPages(async (pageToken) => {
      const request = { sandboxId: this.sandboxId, showEnded, pageSize: PAGE, pageToken };
      const call = (options: object) => this.#connection.processes.listProcesses(request, options);
      const { processes, nextPageToken } = await this.#connection.again(call, signal);
      return { items: processes.map(processInfo), nextPageToken };
    });
  }

  /** Reads its data again. Throws SANDBOX_NOT_FOUND. */
  async refresh({ signal }: CallSettings = {}): Promise<SandboxInfo> {
    const request = this.#name;
    const call = (options: object) => this.#connection.sandboxes.getSandbox(request, options);
    return this.#update(await this.#connection.again(call, signal));
  }

  /**
   * Measures what it uses, running or paused. That is not a use: it does not restart the idle time.
   *
   * Two calls give the CPU time it uses: the difference of their `cpuTimeMs`, divided by that of their `measureTime`, is
   * 1 for one core. Let at least a second pass between them. Throws SANDBOX_NOT_FOUND, SANDBOX_NOT_RUNNING.
   */
  async usage({ signal }: CallSettings = {}): Promise<ResourceUsage> {
    const request = this.#name;
    const call = (options: object) => this.#connection.sandboxes.getSandboxUsage(request, options);
    return resourceUsage((await this.#connection.again(call, signal)).usage);
  }

  /** Restarts its idle time, as every use does. */
  async keepAlive({ signal }: CallSettings = {}): Promise<SandboxInfo> {
    const request = this.#request();
    const call = (options: object) => this.#connection.sandboxes.keepAliveSandbox(request, options);
    return this.#update(await this.#connection.again(call, signal));
  }

  /** Changes the given settings; labels replace all existing ones. */
  async update({ signal, ...changes }: CallSettings & SandboxChanges): Promise<SandboxInfo> {
    const { labels, idleTimeoutMs, maxLifetimeMs } = changes;
    const given = { labels, idle_timeout: idleTimeoutMs, max_lifetime: maxLifetimeMs };
    const request = {
      ...this.#request(),
      updateMask: {
        paths: Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [name])),
      },
      ...(labels && { labels: { ...labels } }),
      idleTimeout: duration(idleTimeoutMs),
      maxLifetime: duration(maxLifetimeMs),
    };
    const call = (options: object) => this.#connection.sandboxes.updateSandbox(request, options);
    return this.#update(await this.#connection.again(call, signal));
  }

  /** Freezes its processes. Throws UNSUPPORTED if the engine cannot. */
  async pause({ signal }: CallSettings = {}): Promise<SandboxInfo> {
    const request = this.#request();
    const call = (options: object) => this.#connection.sandboxes.pauseSandbox(request, options);
    return this.#update(await this.#connection.again(call, signal));
  }

  /** Continues its processes. */
  async resume({ signal }: CallSettings = {}): Promise<SandboxInfo> {
    const request = this.#request();
    const call = (options: object) => this.#connection.sandboxes.resumeSandbox(request, options);
    return this.#update(await this.#connection.again(call, signal));
  }

  /** Deletes it, and returns when it is gone. Running operations may continue for `graceMs` (default 5000). Idempotent. */
  async delete({ graceMs, signal }: CallSettings & { readonly graceMs?: number } = {}): Promise<void> {
    const request = { ...this.#request(), grace: duration(graceMs) };
    const call = (options: object) => this.#connection.sandboxes.deleteSandbox(request, options);
    try {
      await this.#connection.again(call, signal);
    } catch (error) {
      // Then it is gone.
      if (!BerthError.is(error, "SANDBOX_REPLACED")) throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.delete({ graceMs: 0 });
  }

  /** Its id alone may name a later sandbox. */
  get #name() {
    const { sandboxId, generation } = this.info;
    return { sandboxId, generation: BigInt(generation) };
  }

  #request() {
    return { requestId: newRequestId(), ...this.#name };
  }

  #commandFields(line: Command, options: CommandOptions) {
    const { env, secretEnv, redactSecrets = false, workingDir, user, timeoutMs, stdin, runId } = options;
    return {
      ...this.#name,
      command: command(line),
      env: variables(env),
      secretEnv: { ...secretEnv },
      redactSecrets,
      workingDir: workingDir ?? "",
      user: user ?? "",
      timeout: duration(timeoutMs),
      stdin: stdin === undefined ? new Uint8Array() : content(stdin),
      runId: runId ?? "",
    };
  }

  #update({ sandbox }: { readonly sandbox?: SandboxMessage | undefined }): SandboxInfo {
    this.info = sandboxInfo(sandbox);
    return this.info;
  }
}

/** Where to start reading a command's output. */
export interface AttachOptions extends CallSettings {
  readonly stdoutOffset?: number | undefined;
  readonly stderrOffset?: number | undefined;
  /** `recoveries` of the process that the offsets are from. Default: the offsets are used as they are. */
  readonly recoveries?: number | undefined;
  /** How long the client tries to restore a broken connection, for instance while the service restarts. Default 10,000. */
  readonly reconnectMs?: number | undefined;
}

/** What to change in a sandbox. */
export interface SandboxChanges {
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly idleTimeoutMs?: number | undefined;
  readonly maxLifetimeMs?: number | undefined;
}

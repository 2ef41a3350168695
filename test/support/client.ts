import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import * as grpc from "@grpc/grpc-js";
import { fromJSON, loadSync, type MessageTypeDefinition, type MethodDefinition } from "@grpc/proto-loader";
import { Execution } from "./execution.ts";
import type { Duration, RunCommandResponse, Sandbox, StreamItems, UnaryAnswers } from "./wire.ts";
import type { UploadAnswers } from "./wire-files.ts";
import type { WorkspaceUploadAnswers } from "./wire-workspaces.ts";

const LOADER_OPTIONS = {
  keepCase: true,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
  includeDirs: [new URL("../../proto", import.meta.url).pathname],
};

/** Read from the protos at run time, because tests share no generated code with the service. */
const protos = loadSync(
  [
    "berth/v1/sandbox.proto",
    "berth/v1/process.proto",
    "berth/v1/file.proto",
    "berth/v1/workspace.proto",
    "berth/v1/run.proto",
    "berth/v1/session.proto",
    "berth/v1/error.proto",
  ],
  LOADER_OPTIONS,
);

/** google.rpc.Status, as gRPC sends it with an error. */
const { "google.rpc.Status": status } = fromJSON(
  {
    nested: {
      google: {
        nested: {
          rpc: {
            nested: {
              Any: { fields: { type_url: { type: "string", id: 1 }, value: { type: "bytes", id: 2 } } },
              Status: {
                fields: {
                  code: { type: "int32", id: 1 },
                  message: { type: "string", id: 2 },
                  details: { rule: "repeated", type: "Any", id: 3 },
                },
              },
            },
          },
        },
      },
    },
  },
  LOADER_OPTIONS,
);

type Method = MethodDefinition<object, object>;

/** A request, with field names as in the protos. */
export type Request = Readonly<Record<string, unknown>>;

/** The error of a refused call. */
export interface Failure {
  /** The name of the gRPC code. */
  readonly code: string;
  readonly message: string;
  /** The ErrorDetail's reason without its prefix. Empty if there is no detail. */
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** When to retry. Undefined if it does not say. */
  readonly retryAfterMs?: number;
}

/** berth.v1.ErrorDetail */
interface ErrorDetail {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly retry_after: Duration | null;
}

/** A client with another library than the server's: grpc-js with the protos. */
export class Client {
  readonly #grpc: grpc.Client;

  /** @param address `host:port` */
  constructor(
    address: string,
    options: grpc.ClientOptions = {},
    credentials = grpc.credentials.createInsecure(),
  ) {
    this.#grpc = new grpc.Client(address, credentials, {
      // Otherwise clients of the same address share connections, also between tests.
      "grpc.use_local_subchannel_pool": 1,
      "grpc.max_receive_message_length": 64 * 1024 * 1024,
      ...options,
    });
  }

  /** Makes a unary call. */
  call<Name extends keyof UnaryAnswers>(
    name: Name,
    request: Request = {},
    options: grpc.CallOptions & { readonly signal?: AbortSignal } = {},
  ): Promise<UnaryAnswers[Name]> {
    return new Promise((resolve, reject) => {
      const method = methodOf(name);
      const call = this.#grpc.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        options,
        (error, answer) => (error ? reject(error) : resolve(answer as UnaryAnswers[Name])),
      );
      options.signal?.addEventListener("abort", () => call.cancel(), { once: true });
      if (options.signal?.aborted) call.cancel();
    });
  }

  /** Makes a call with a streaming response. */
  stream<Name extends keyof StreamItems>(
    name: Name,
    request: Request = {},
    options: grpc.CallOptions = {},
  ): grpc.ClientReadableStream<StreamItems[Name]> {
    const method = methodOf(name);
    return this.#grpc.makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize as (bytes: Buffer) => StreamItems[Name],
      request,
      options,
    );
  }

  /** Makes a call that sends a stream, as fast as the server accepts it. */
  upload<Name extends keyof (UploadAnswers & WorkspaceUploadAnswers)>(
    name: Name,
    requests: AsyncIterable<Request> | Iterable<Request>,
    options: grpc.CallOptions & { readonly signal?: AbortSignal } = {},
  ): Promise<(UploadAnswers & WorkspaceUploadAnswers)[Name]> {
    const method = methodOf(name);
    const answer = Promise.withResolvers<(UploadAnswers & WorkspaceUploadAnswers)[Name]>();
    const call = this.#grpc.makeClientStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      options,
      (error, message) =>
        error
          ? answer.reject(error)
          : answer.resolve(message as (UploadAnswers & WorkspaceUploadAnswers)[Name]),
    );
    options.signal?.addEventListener("abort", () => call.cancel(), { once: true });
    const answered = new AbortController();
    pipeline(Readable.from(requests), call as Writable, { signal: answered.signal }).catch(() => {
      // The error is in the answer.
    });
    return answer.promise.finally(() => answered.abort());
  }

  /** Sends raw bytes to any path. */
  raw(path: string, bytes: Buffer): Promise<Buffer> {
    const same = (buffer: Buffer): Buffer => buffer;
    return new Promise((resolve, reject) => {
      this.#grpc.makeUnaryRequest(path, same, same, bytes, (error, answer) =>
        error ? reject(error) : resolve(answer ?? Buffer.alloc(0)),
      );
    });
  }

  async createSandbox(spec: Request = {}): Promise<Sandbox> {
    return (await this.call("SandboxService/CreateSandbox", { spec })).sandbox;
  }

  async getSandbox(sandboxId: string): Promise<Sandbox> {
    return (await this.call("SandboxService/GetSandbox", { sandbox_id: sandboxId })).sandbox;
  }

  async deleteSandbox(sandboxId: string): Promise<void> {
    await this.call("SandboxService/DeleteSandbox", { sandbox_id: sandboxId });
  }

  /** Starts a command and follows it. A string is a shell line, a list is the argument vector. */
  exec(sandboxId: string, command: string | readonly string[], more: Request = {}): Execution {
    const request = { sandbox_id: sandboxId, ...commandOf(command), ...more };
    return new Execution(this.stream("ProcessService/Exec", request));
  }

  /** Follows a process that has been started. */
  attach(processId: string, from: { stdout?: number; stderr?: number } = {}): Execution {
    const { stdout = 0, stderr = 0 } = from;
    const request = { process_id: processId, stdout_offset: stdout, stderr_offset: stderr };
    return new Execution(this.stream("ProcessService/AttachProcess", request), { stdout, stderr });
  }

  run(
    sandboxId: string,
    command: string | readonly string[],
    more: Request = {},
  ): Promise<RunCommandResponse> {
    const request = { sandbox_id: sandboxId, ...commandOf(command), ...more };
    return this.call("ProcessService/RunCommand", request);
  }

  /** What a shell line writes to stdout. Fails unless it exits with code 0, and by itself. */
  async output(sandboxId: string, line: string, more: Request = {}): Promise<string> {
    const { stdout, stderr, exit_status: exit } = await this.run(sandboxId, line, more);
    if (exit.cause !== "EXIT_CAUSE_EXITED" || exit.exit_code !== 0)
      throw new Error(`${exit.cause}, exit code ${exit.exit_code} of ${line}: ${stderr}`);
    return stdout.toString();
  }

  close(): void {
    this.#grpc.close();
  }
}

/** The error of a refused call. Fails if the call succeeds. */
export async function failureOf(call: Promise<unknown>): Promise<Failure> {
  const error = await call.then(
    (answer) => Promise.reject(new Error(`the call did not fail: ${JSON.stringify(answer)}`)),
    (reason: unknown) => reason,
  );
  if (!(error instanceof Error) || !("metadata" in error)) throw error;
  const { code, details, metadata } = error as grpc.ServiceError;
  return { code: grpc.status[code], message: details, ...detailOf(metadata) };
}

function detailOf(metadata: grpc.Metadata): Pick<Failure, "reason" | "metadata" | "retryAfterMs"> {
  const [bytes] = metadata.get("grpc-status-details-bin");
  if (!Buffer.isBuffer(bytes)) return { reason: "", metadata: {} };
  const { details } = (status as MessageTypeDefinition<object, object>).deserialize(bytes) as {
    details: { type_url: string; value: Buffer }[];
  };
  const any = details.find(({ type_url: url }) => url.endsWith("/berth.v1.ErrorDetail"));
  if (any === undefined) return { reason: "", metadata: {} };
  const type = protos["berth.v1.ErrorDetail"] as MessageTypeDefinition<object, object>;
  const { reason, metadata: facts, retry_after: after } = type.deserialize(any.value) as ErrorDetail;
  return {
    reason: reason.replace(/^ERROR_REASON_/, ""),
    metadata: facts,
    ...(after && { retryAfterMs: after.seconds * 1000 + after.nanos / 1e6 }),
  };
}

function methodOf(name: string): Method {
  const [service, method] = name.split("/");
  const found = (protos[`berth.v1.${service}`] as Record<string, Method> | undefined)?.[method ?? ""];
  if (found === undefined) throw new Error(`the protos have no method ${name}`);
  return found;
}

function commandOf(command: string | readonly string[]): Request {
  return typeof command === "string" ? { shell: command } : { argv: { args: command } };
}

import { cpus } from "node:os";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import {
  DownloadFileRequestSchema,
  DownloadFileResponseSchema,
  FileService,
  UploadFileRequestSchema,
} from "../../gen/ts/berth/v1/file_pb.js";
import {
  ExecRequestSchema,
  type ExecResponse,
  ExecResponseSchema,
  OutputStream,
  ProcessService,
} from "../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { pathOf } from "../client.ts";
import { download, upload } from "../file-transfer.ts";
import { enveloped } from "../rpc/frames.ts";
import { BenchService } from "../service.ts";
import { CONNECT_HEADERS, ConnectAnswer, connectStream } from "./connect.ts";
import { type Containers, LIMITS } from "./containers.ts";
import { filling, HttpClient } from "./http.ts";
import { Counter, type Peer, type PeerContext, type PeerSandbox, type Result } from "./peer.ts";

/** How clients call Berth: with plain HTTP, as every peer's client here, or with a gRPC library. */
export type Via = "Connect" | "gRPC";

/** Berth without a warm pool. */
export async function berth({ image }: PeerContext, { docker }: Containers, via: Via): Promise<Peer> {
  const service = await BenchService.start(image, ["--engine", "docker"]);
  const resources = {
    memoryBytes: BigInt(LIMITS.memoryBytes),
    pidsLimit: LIMITS.pids,
    cpuMillis: cpus().length * 1000,
  };
  const http = new HttpClient(service.address);
  return {
    name: via === "Connect" ? "Berth" : `Berth, ${via}`,
    pids: [service.pid],
    create: async () => {
      const { createSandbox } = SandboxService.method;
      const { sandbox } = await service.client.unary(createSandbox, { spec: { resources } });
      const sandboxId = sandbox?.sandboxId ?? "";
      return {
        containerId: async () => {
          const filters = { label: [`berth.sandbox_id=${sandboxId}`] };
          return (await docker.listContainers({ filters }))[0]?.Id ?? "";
        },
        remove: () => service.remove(sandboxId),
        ...(via === "Connect" ? overConnect(http, sandboxId) : overGrpc(service, sandboxId)),
      };
    },
    close: async () => {
      http.close();
      await service.stop();
    },
  };
}

type Calls = Pick<PeerSandbox, "run" | "upload" | "download">;

function overGrpc({ client }: BenchService, sandboxId: string): Calls {
  return {
    run: (line, { timeoutMs } = {}) => {
      const { promise, resolve, reject } = Promise.withResolvers<Result>();
      const running = new Running();
      client
        .stream(ProcessService.method.exec, execOf(sandboxId, line, timeoutMs))
        .on("data", running.take)
        .on("error", reject)
        .on("end", () => resolve(running.result));
      return promise;
    },
    upload: (path, bytes) => upload(client, { sandboxId, path }, bytes),
    download: (path, bytes) => download(client, { sandboxId, path }, bytes),
  };
}

function overConnect(client: HttpClient, sandboxId: string): Calls {
  return {
    run: async (line, { timeoutMs } = {}) => {
      const running = new Running();
      const request = create(ExecRequestSchema, execOf(sandboxId, line, timeoutMs));
      const { exec } = ProcessService.method;
      await connectStream(client, pathOf(exec), toBinary(ExecRequestSchema, request), (message) =>
        running.take(fromBinary(ExecResponseSchema, message)),
      );
      return running.result;
    },
    upload: async (path, bytes) => {
      const answer = new ConnectAnswer(() => {});
      const parts = uploadOf(sandboxId, path, bytes);
      const { uploadFile } = FileService.method;
      await client.send(pathOf(uploadFile), CONNECT_HEADERS, parts, undefined, answer.push);
      answer.end();
    },
    download: async (path, bytes) => {
      const counter = new Counter();
      const request = create(DownloadFileRequestSchema, { sandboxId, path });
      const { downloadFile } = FileService.method;
      await connectStream(
        client,
        pathOf(downloadFile),
        toBinary(DownloadFileRequestSchema, request),
        (message) => {
          const { part } = fromBinary(DownloadFileResponseSchema, message);
          if (part.case === "chunk") counter.take(part.value);
        },
      );
      counter.expect(bytes);
    },
  };
}

function* uploadOf(sandboxId: string, path: string, bytes: number): Generator<Buffer> {
  const encode = (part: MessageInitShape<typeof UploadFileRequestSchema>["part"]): Buffer =>
    enveloped(toBinary(UploadFileRequestSchema, create(UploadFileRequestSchema, { part })));
  // The clients announce the size, too.
  yield encode({ case: "header", value: { sandboxId, path, sizeBytes: BigInt(bytes) } });
  let last: { readonly length: number; readonly message: Buffer } | undefined;
  for (const value of filling(bytes)) {
    // All chunks are equal, and encoding one takes longer than receiving it.
    if (last?.length !== value.length) {
      last = { length: value.length, message: encode({ case: "chunk", value: new Uint8Array(value) }) };
    }
    yield last.message;
  }
}

function execOf(sandboxId: string, line: string, timeoutMs: number | undefined) {
  return {
    ...{ sandboxId, command: { case: "shell" as const, value: line } },
    ...(timeoutMs !== undefined && { timeout: durationFromMs(timeoutMs) }),
  };
}

/** Collects the events of an Exec. */
class Running {
  readonly #stdout: Uint8Array[] = [];
  readonly #stderr: Uint8Array[] = [];
  #exitCode: number | undefined;

  readonly take = ({ event }: ExecResponse): void => {
    if (event.case === "output") {
      const to = event.value.stream === OutputStream.STDERR ? this.#stderr : this.#stdout;
      to.push(event.value.data);
    } else if (event.case === "exited") this.#exitCode = event.value.exitCode;
  };

  get result(): Result {
    if (this.#exitCode === undefined) throw new Error("the command ended without exited");
    const [stdout, stderr] = [Buffer.concat(this.#stdout), Buffer.concat(this.#stderr)];
    return { stdout, stderr, exitCode: this.#exitCode };
  }
}

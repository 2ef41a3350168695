import { once } from "node:events";
import http2 from "node:http2";
import {
  create,
  createFileRegistry,
  type DescMethod,
  type DescService,
  fromBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  ServerReflection,
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  type ServerReflectionResponse,
} from "../../../gen/ts/grpc/reflection/v1/reflection_pb.js";
import { Client } from "../../support/client.ts";
import { hostileJson, hostileMessages } from "../../support/hostile-messages.ts";
import { manyNames } from "../../support/many-names.ts";
import { PauseService } from "../../support/pause-service.ts";
import { GrpcJs } from "../../support/server/grpc-js.ts";
import { grpcFrame } from "../../support/server/http.ts";
import { Worker } from "../../support/worker.ts";

/** The event loop serves every caller, so no input may block it for longer. */
const MAX_PAUSE_MS = 100;
/**
 * An input that took too long is sent again, until this many in a row did not. One-time delays, such as garbage
 * collection or the compilation of new code, do not recur with the same input; an input that is often slow is found.
 */
const IN_A_ROW = 3;
const TRIES = 6;

let service: PauseService;
let client: Client;
let session: http2.ClientHttp2Session;
let sandboxId = "";
let worker: Worker;

beforeAll(async () => {
  service = await PauseService.start(["--engine", "bubblewrap"]);
  client = new Client(service.process.address);
  session = http2.connect(`http://${service.process.address}`);
  worker = new Worker(client, "hostile");
  const { session: made } = await worker.create("files");
  sandboxId = made?.sandbox_id ?? "";
  await client.output(
    sandboxId,
    `cd /workspace; mkdir many one; touch one/${"a".repeat(60)}
cd many; ${manyNames(20_000, "f%d")}; cd ..
head -c 4000000 /dev/zero | tr '\\0' a >long; seq 400000 >lines; head -c 8000000 /dev/zero | tr '\\0' '\\n' >empty`,
  );
});
afterAll(async () => {
  session.destroy();
  client.close();
  await service.process.stop();
});

/** Fails unless the event loop gets its turns in enough of a few tries. */
async function expectNoPause(about: string, act: () => Promise<unknown>): Promise<void> {
  const pauses: number[] = [];
  const isEnough = () =>
    pauses.length === 1 ? isShort(pauses) : pauses.length >= IN_A_ROW && isShort(pauses.slice(-IN_A_ROW));
  while (!isEnough() && pauses.length < TRIES) {
    await service.longestPause();
    await act();
    pauses.push(Math.round(await service.longestPause()));
    expect(session.destroyed, `${about} ended its connection`).toBe(false);
  }
  if (process.env.BERTH_TEST_SHOW_PAUSES) console.log(`${pauses.join(", ")} ms: ${about}`);
  expect(isEnough(), `${about} held the event loop for ${pauses.join(", ")} ms`).toBe(true);
}

function isShort(pauses: readonly number[]): boolean {
  return pauses.every((ms) => ms < MAX_PAUSE_MS);
}

/** Sends a body as a separate request. Returns the length of the response, whatever it is. */
async function send(path: string, type: string, body: Buffer, timeoutS = 2): Promise<number> {
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": type,
    te: "trailers",
    "grpc-timeout": `${timeoutS}S`,
    "connect-timeout-ms": String(timeoutS * 1000),
  });
  let length = 0;
  stream.on("error", () => {});
  stream.on("data", (chunk: Buffer) => {
    length += chunk.length;
  });
  stream.end(body);
  await new Promise<void>((resolve) => stream.once("close", resolve));
  return length;
}

/** The methods that the server lists. */
async function servedMethods(): Promise<DescMethod[]> {
  using grpc = new GrpcJs(service.process.address);
  const call = grpc.bidi(ServerReflection.method.serverReflectionInfo);
  const ask = async (messageRequest: ServerReflectionRequest["messageRequest"]) => {
    const answer = once(call, "data");
    call.write(create(ServerReflectionRequestSchema, { messageRequest }));
    return ((await answer) as [ServerReflectionResponse])[0].messageResponse;
  };
  const list = await ask({ case: "listServices", value: "" });
  if (list.case !== "listServicesResponse") throw new Error("no list of services");
  const services: DescService[] = [];
  for (const { name } of list.value.service) {
    const files = await ask({ case: "fileContainingSymbol", value: name });
    if (files.case !== "fileDescriptorResponse") throw new Error(`no file of ${name}`);
    const protos = new Map(
      files.value.fileDescriptorProto.map((bytes) => {
        const proto = fromBinary(FileDescriptorProtoSchema, bytes);
        return [proto.name, proto];
      }),
    );
    const [own] = protos.values();
    if (own === undefined) throw new Error(`no file of ${name}`);
    const found = createFileRegistry(own, (imported) => protos.get(imported)).getService(name);
    if (found === undefined) throw new Error(`${name} is not in its file`);
    services.push(found);
  }
  call.end();
  await once(call, "end");
  return services.flatMap(({ methods }) => methods);
}

type Act = readonly [about: string, act: () => Promise<unknown>];

const tool = (name: string, params: Record<string, unknown>): Act => [
  `${name} ${JSON.stringify(params).slice(0, 60)}`,
  () => worker.execute(name, params, { timeout: { seconds: 20, nanos: 0 } }),
];
/** A tool call that is refused. */
const refused = (name: string, params: Record<string, unknown>, problem: string): Act => {
  const [about, act] = tool(name, params);
  return [about, () => expect(act()).rejects.toThrow(problem)];
};
const drain = async (stream: AsyncIterable<unknown>): Promise<void> => {
  for await (const _ of stream) {
    // The data does not matter.
  }
};

/**
 * What only one method can be made to do, besides {@link hostileMessages} and {@link hostileJson}. Empty if those cover
 * it.
 */
const OWN: Readonly<Record<string, () => readonly Act[]>> = {
  "berth.v1.SessionService/ExecuteTool": () => [
    tool("files:glob", { pattern: "*a*a*a*a*a*a*b", path: "one" }),
    tool("files:glob", { pattern: "+(a|aa)b", path: "one" }),
    refused("files:glob", { pattern: "{1..100000}", path: "one" }, "more than 1000 patterns"),
    refused("files:glob", { pattern: "{a,b}".repeat(100), path: "one" }, "more than 1000 patterns"),
    tool("files:glob", { pattern: `*${"?".repeat(400)}`, path: "many" }),
    tool("files:glob", { pattern: "**/".repeat(300), path: "many" }),
    tool("files:glob", { pattern: "**" }),
    tool("files:grep", { pattern: "[0-9]", path: "lines" }),
    tool("files:grep", { pattern: ".", path: ".", glob: "*a*a*a*a*a*a*b" }),
    tool("files:edit", { file_path: "long", old_string: "a", new_string: "aa", replace_all: true }),
    tool("files:edit", { file_path: "long", old_string: `${"a".repeat(500_000)}b`, new_string: "" }),
    tool("files:edit", { file_path: "long", old_string: `b${"a".repeat(500_000)}`, new_string: "" }),
    tool("files:read", { file_path: "lines", limit: 100_000 }),
    tool("files:read", { file_path: "empty", offset: 7_999_990 }),
    tool("files:read", { file_path: "long" }),
    refused("files:read", { ["k".repeat(3_900_000)]: 1 }, "is not known"),
    tool("code:execute", { language: "bash", code: "head -c 20000000 /dev/zero" }),
    ["a bash that reports a million pids", () => reportPids()],
  ],
  "berth.v1.ProcessService/RunCommand": () => [
    [
      "16 MiB of output",
      () =>
        client.call("ProcessService/RunCommand", {
          sandbox_id: sandboxId,
          shell: "head -c 30000000 /dev/zero",
          max_output_bytes: 16 * 1024 * 1024,
        }),
    ],
    [
      "16 MiB of output in JSON",
      async () => {
        const request = { sandboxId, shell: "head -c 30000000 /dev/zero", maxOutputBytes: 16 * 1024 * 1024 };
        const body = Buffer.from(JSON.stringify(request));
        const length = await send("/berth.v1.ProcessService/RunCommand", "application/json", body, 60);
        expect(length).toBeGreaterThan((request.maxOutputBytes / 3) * 4);
      },
    ],
  ],
  "berth.v1.ProcessService/Exec": () => [
    [
      "a line a write",
      () => client.exec(sandboxId, "seq 200000; for i in $(seq 20000); do echo $i; done").result,
    ],
  ],
  "berth.v1.FileService/ListDirectory": () => [
    [
      "20,000 names",
      () =>
        client.call("FileService/ListDirectory", {
          sandbox_id: sandboxId,
          path: "/workspace/many",
          page_size: 1000,
        }),
    ],
  ],
  "berth.v1.FileService/WatchDirectory": () => [["95,000 files that change", () => watchMany()]],
  "berth.v1.SessionService/DestroySessions": () => [
    ["many types", () => expect(endSessions()).rejects.toThrow("at most 32")],
  ],
  "berth.v1.WorkspaceService/DiffWorkspace": () => [["20,000 entries and 400 MB", () => compareLarge()]],
  "berth.v1.FileService/UploadFile": () => [
    ["messages without content", () => uploadSmall("UploadFile", "application/grpc", SMALL_CHUNKS.empty)],
    ["messages of a byte", () => uploadSmall("UploadFile", "application/grpc", SMALL_CHUNKS.byte)],
    ["ends of a stream", () => uploadSmall("UploadFile", "application/connect+proto", SMALL_CHUNKS.end)],
    [
      "ends of a stream in JSON",
      () => uploadSmall("UploadFile", "application/connect+json", SMALL_CHUNKS.end, false),
    ],
  ],
  "berth.v1.FileService/UploadArchive": () => [
    ["a tar of empty files", () => uploadEmptyFiles()],
    ["messages without content", () => uploadSmall("UploadArchive", "application/grpc", SMALL_CHUNKS.empty)],
  ],
  "berth.v1.FileService/DownloadArchive": () => [
    [
      "20,000 files",
      () =>
        drain(
          client.stream("FileService/DownloadArchive", { sandbox_id: sandboxId, path: "/workspace/many" }),
        ),
    ],
  ],
};

/** Methods that {@link hostileMessages} and {@link hostileJson} cover: they only process their message. */
const GENERAL = [
  "berth.v1.FileService: StatFile MakeDirectory RemoveFile MoveFile ReadFile WriteFile DownloadFile",
  "berth.v1.ProcessService: AttachProcess WriteStdin SignalProcess ResizeTerminal GetProcess ListProcesses",
  "berth.v1.RunService: CreateRun StartRun ReportStep KeepAliveRun CancelRun ResetRun GetRun ListRuns DeleteRun WatchRun",
  "berth.v1.SandboxService: CreateSandbox GetSandbox ListSandboxes UpdateSandbox KeepAliveSandbox PauseSandbox ResumeSandbox",
  "berth.v1.SandboxService: DeleteSandbox GetSandboxUsage GetStats WatchEvents",
  "berth.v1.SessionService: CreateSessions ExecuteToolStream ExecuteToolBatch RefreshSessions ReinitializeSession",
  "berth.v1.SessionService: ListSessions ListTools ViewSession",
  "berth.v1.WorkspaceService: CreateWorkspace GetWorkspace ListWorkspaces EnsureWorkspaceSandbox StopWorkspaceSandbox",
  "berth.v1.WorkspaceService: AddTraceRef RemoveTraceRef LookupTrace CleanupWorkspace ForkWorkspace ExportWorkspace ImportWorkspace",
  "grpc.health.v1.Health: Check List Watch",
  "grpc.reflection.v1.ServerReflection: ServerReflectionInfo",
  "grpc.reflection.v1alpha.ServerReflection: ServerReflectionInfo",
].flatMap((line) => {
  const [service = "", methods = ""] = line.split(": ");
  return methods.split(" ").map((method) => `${service}/${method}`);
});

/** Many entries that differ, and much equal content, half of it holes. */
async function compareLarge(): Promise<void> {
  for (const [id, lines] of [
    ["one", "true"],
    ["other", `mkdir deep; cd deep; ${manyNames(20_000)}`],
  ] as const) {
    const request = { workspace_id: id };
    const { sandbox } = await client.call("WorkspaceService/EnsureWorkspaceSandbox", request);
    await client.output(
      sandbox?.sandbox_id ?? "",
      `head -c 200000000 /dev/zero >full; truncate -s 200000000 holes; ${lines}`,
    );
  }
  const request = { base_workspace_id: "one", workspace_id: "other" };
  await drain(client.stream("WorkspaceService/DiffWorkspace", request));
}

/** Makes the session's bash print far more at the end of a command than its directory and processes. */
async function reportPids(): Promise<void> {
  await worker.create("bash");
  const flood = "seq 1000000 3500000 | tr '\\n' ' ' >&211";
  await worker.bash(`builtin() { command builtin "$@"; [ "$1" != pwd ] || ${flood}; }`);
  await worker.bash("unset -f builtin");
  expect((await worker.bash("echo next")).stdout).toBe("next\n");
}

/** Watches a directory until all its files have changed. */
async function watchMany(): Promise<void> {
  await client.output(sandboxId, `mkdir -p /workspace/watched; cd /workspace/watched; ${manyNames(95_000)}`);
  const request = { sandbox_id: sandboxId, path: "/workspace/watched", interval: { seconds: 0, nanos: 2e8 } };
  let changes = 0;
  for await (const item of client.stream("FileService/WatchDirectory", request)) {
    if (item.started) void client.output(sandboxId, "cd /workspace/watched; seq 95000 | xargs touch -d @1");
    else if (item.change && ++changes === 95_000) break;
  }
}

/** Destroys sessions of as many types as fit into a message. */
function endSessions(): Promise<unknown> {
  const types = Array.from({ length: 60_000 }, (_, index) => index.toString(36));
  return client.call("SessionService/DestroySessions", { worker_id: "nobody", resource_types: types });
}

/** Nearly empty frames: a chunk without bytes, one with a byte, and an end of a stream. */
const SMALL_CHUNKS = {
  empty: grpcFrame(Buffer.from([0x12, 0])),
  byte: grpcFrame(Buffer.from([0x12, 1, 0x61])),
  end: Buffer.from([2, 0, 0, 0, 0]),
};

/** Uploads so many small frames that they all arrive at once. */
async function uploadSmall(method: string, type: string, chunk: Buffer, hasHeader = true): Promise<void> {
  const field = (number: number, text: string | Buffer) => {
    const content = Buffer.from(text);
    return Buffer.concat([Buffer.from([number * 8 + 2, content.length]), content]);
  };
  const place = [field(2, sandboxId), field(3, method === "UploadFile" ? "/tmp/small" : "/tmp")];
  const header = hasHeader ? [grpcFrame(field(1, Buffer.concat(place)))] : [];
  const chunks = Buffer.alloc(200_000 * chunk.length, chunk);
  await send(`/berth.v1.FileService/${method}`, type, Buffer.concat([...header, chunks]));
}

/** Empty files, as many as fill a client's chunks. */
async function uploadEmptyFiles(): Promise<void> {
  const header = Buffer.alloc(512);
  header.write("0000644\0", 100);
  header.write("00000000000\0", 124);
  header.write("00000000000\0", 136);
  header.write("0ustar\x0000", 156);
  const entries = Array.from({ length: 12_000 }, (_, index) => {
    const entry = Buffer.from(header);
    entry.write(`d${index % 97}/f${index}`);
    entry.fill(" ", 148, 156);
    const sum = entry.reduce((total, byte) => total + byte, 0);
    entry.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    return entry;
  });
  const tar = Buffer.concat([...entries, Buffer.alloc(1024)]);
  const chunks = Array.from({ length: Math.ceil(tar.length / 1_000_000) }, (_, index) => ({
    chunk: tar.subarray(index * 1_000_000, (index + 1) * 1_000_000),
  }));
  await client.upload("FileService/UploadArchive", [
    { header: { sandbox_id: sandboxId, path: "/workspace/unpacked", create_parents: true } },
    ...chunks,
  ]);
}

test("every method that is served has its entry here", async () => {
  const served = (await servedMethods()).map(({ parent, name }) => `${parent.typeName}/${name}`);
  expect([...Object.keys(OWN), ...GENERAL].sort()).toEqual(served.sort());
});

describe("no message blocks the event loop", () => {
  test("in gRPC and in JSON, of any method", { timeout: 300_000 }, async () => {
    const seen = new Set<string>();
    const kinds = new Set<string>();
    for (const method of await servedMethods()) {
      // The size limit is the same for all methods of a kind.
      const full = !kinds.has(method.methodKind);
      kinds.add(method.methodKind);
      const path = `/${method.parent.typeName}/${method.name}`;
      for (const { about, bytes } of hostileMessages(method.input, seen)) {
        await expectNoPause(`${path} ${about}`, () => send(path, "application/grpc", grpcFrame(bytes())));
      }
      const unary = method.methodKind === "unary";
      for (const { about, text } of hostileJson(method.input, full)) {
        const body = Buffer.from(text);
        await expectNoPause(`${path} JSON ${about}`, () =>
          unary
            ? send(path, "application/json", body)
            : send(path, "application/connect+json", grpcFrame(body)),
        );
      }
    }
  });
});

test.each(Object.keys(OWN))("work that %s requests does not block the event loop", async (name) => {
  for (const [about, act] of OWN[name]?.() ?? []) await expectNoPause(`${name}: ${about}`, act);
});

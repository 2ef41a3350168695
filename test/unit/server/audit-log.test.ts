import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  createContextValues,
  createMethodImplSpec,
  type HandlerContext,
  type MethodImplSpec,
} from "@connectrpc/connect";
import { expect, test } from "vitest";
import {
  FileService,
  type UploadFileHeader,
  type UploadFileRequest,
  UploadFileRequestSchema,
} from "../../../gen/ts/berth/v1/file_pb.js";
import {
  ExecuteToolStreamRequestSchema,
  type ExecuteToolStreamResponseSchema,
  SessionService,
} from "../../../gen/ts/berth/v1/session_pb.js";
import { beginUpload } from "../../../src/rpc/stream.ts";
import { AuditLog, withSubjects } from "../../../src/server/audit-log.ts";
import { type Call, setCall } from "../../../src/server/call.ts";
import { Subjects } from "../../../src/server/subjects.ts";

test("a tool whose stream begins with keepalives is recorded with its session", async () => {
  const call = { subjects: new Subjects(), changes: true } as Call;
  const values = createContextValues();
  setCall(values, call);
  const answers: MessageInitShape<typeof ExecuteToolStreamResponseSchema>[] = [
    { event: { case: "keepalive", value: {} } },
    { event: { case: "keepalive", value: {} } },
    { event: { case: "started", value: { meta: { sessionId: "bash_w_001_abcdef01" } } } },
    { event: { case: "response", value: { meta: { sessionId: "not looked at" } } } },
  ];
  const spec = withSubjects(
    createMethodImplSpec(SessionService.method.executeToolStream, async function* () {
      yield* answers;
    }),
  ) as MethodImplSpec & { readonly kind: "server_streaming" };
  const request = create(ExecuteToolStreamRequestSchema, { workerId: "w" });
  const sent: unknown[] = [];
  for await (const answer of spec.impl(request, { values } as HandlerContext)) sent.push(answer);
  expect(sent).toEqual(answers);
  expect(call.subjects?.ids).toEqual({ worker_id: ["w"], session_id: ["bash_w_001_abcdef01"] });
});

test("an id that a caller chose does not act on the terminal on which the log is read", () => {
  const lines: string[] = [];
  const log = new AuditLog({ append: (line) => void lines.push(line) }, { reads: false });
  const call = { changes: true, method: "berth.v1.SessionService/ExecuteToolStream", ageMs: 1 } as Call;
  log.started(call);
  const workerId = "\x1b[2J\x9b2J\x7f\u202eabc\u2028日本";
  call.subjects?.add(ExecuteToolStreamRequestSchema, { workerId });
  log.ended(call, 0);
  const [line = ""] = lines;
  expect(line).not.toMatch(/[\0-\x1f\x7f-\x9f\u2028\u202e]/);
  expect(JSON.parse(line).ids).toEqual({ worker_id: [workerId] });
});

test("an upload of the announced size is whole at its end, as without an audit log", async () => {
  const parts = [
    { case: "header" as const, value: { sandboxId: "s", sizeBytes: 5n } },
    { case: "chunk" as const, value: Buffer.from("whole") },
  ];
  const messages = parts.map((part) => create(UploadFileRequestSchema, { part })).values();
  let isTrusted = false;
  const iterator = {
    next: async () => messages.next(),
    trustEnd: () => {
      isTrusted = true;
    },
  };
  const spec = withSubjects(
    createMethodImplSpec(FileService.method.uploadFile, async (requests) => {
      const { chunks } = await beginUpload<UploadFileHeader>(requests, ({ sizeBytes }) => sizeBytes);
      for await (const _ of chunks) expect(isTrusted).toBe(false);
      return {};
    }),
  ) as MethodImplSpec & { readonly kind: "client_streaming" };
  const call = { subjects: new Subjects(), changes: true } as Call;
  const values = createContextValues();
  setCall(values, call);
  const requests: AsyncIterable<UploadFileRequest> = { [Symbol.asyncIterator]: () => iterator };
  await spec.impl(requests, { values } as HandlerContext);
  expect(isTrusted).toBe(true);
  expect(call.subjects?.ids).toEqual({ sandbox_id: ["s"] });
});

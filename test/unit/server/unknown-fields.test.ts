import { gzipSync } from "node:zlib";
import { create, toJson } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WriteFileRequestSchema } from "../../../gen/ts/berth/v1/file_pb.js";
import { ExecRequestSchema } from "../../../gen/ts/berth/v1/process_pb.js";
import {
  CreateSandboxRequestSchema,
  ListSandboxesRequestSchema,
  SandboxService,
  UpdateSandboxRequestSchema,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { CreateSessionsRequestSchema } from "../../../gen/ts/berth/v1/session_pb.js";
import { unknownField } from "../../../src/server/message-check.ts";
import { grpcFrame, http2Request } from "../../support/server/http.ts";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const UNARY = "/berth.v1.SandboxService/GetSandbox";
const STREAM = "/berth.v1.ProcessService/Exec";

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server[Symbol.asyncDispose]());

interface Ending {
  readonly error?: { readonly code: string; readonly message: string; readonly details: Detail[] };
}
interface Detail {
  readonly debug: { readonly metadata: Record<string, string> };
}

/** The error of a Connect call with JSON, unary or streaming; undefined if it succeeded. */
async function call(path: string, json: string, headers: Record<string, string> = {}) {
  const unary = path === UNARY;
  const response = await http2Request(
    server.url,
    {
      ":path": path,
      "content-type": unary ? "application/json" : "application/connect+json",
      ...headers,
    },
    unary ? json : grpcFrame(Buffer.from(json)),
  );
  if (unary) return response.status === 200 ? undefined : (JSON.parse(response.body) as Ending["error"]);
  // The last message of a stream reports how it ended.
  const end = response.body.slice(response.body.lastIndexOf("\x02\0\0") + 5);
  return (JSON.parse(end) as Ending).error;
}

describe.each([
  [UNARY, { sandboxID: "sbx_1" }, "sandboxID", 'Did you mean "sandboxId"?'],
  [UNARY, { sandbox_idd: "sbx_1" }, "sandbox_idd", 'Did you mean "sandbox_id"?'],
  [UNARY, { name: "sbx_1" }, "name", "It has sandboxId, generation."],
  [STREAM, { shell: "count 1", stdinn: "" }, "stdinn", 'Did you mean "stdin"?'],
  [STREAM, { argv: { args: ["a"], argz: [] } }, "argv.argz", 'Did you mean "args"?'],
])("%s %j", (path, message, field, advice) => {
  test("is refused with its name", async () => {
    const error = await call(path, JSON.stringify(message));
    expect(error?.code).toBe("invalid_argument");
    expect(error?.message).toContain(`${field}: berth.v1.`);
    expect(error?.message).toContain(advice);
    expect(error?.details[0]?.debug.metadata).toEqual({ field });
  });

  test("is ignored if the client asks for that", async () => {
    expect(
      await call(path, JSON.stringify(message), { "Berth-Ignore-Unknown-Fields": "true" }),
    ).toBeUndefined();
    expect(await call(path, JSON.stringify(message), { "Berth-Ignore-Unknown-Fields": "no" })).toBeDefined();
  });
});

describe.each([
  ["DETACH", 'Did you mean "ON_DISCONNECT_DETACH"?'],
  ["detach", 'Did you mean "ON_DISCONNECT_DETACH"?'],
  ["ON_DISCONNECT_DETATCH", 'Did you mean "ON_DISCONNECT_DETACH"?'],
  ["whatever", "It has ON_DISCONNECT_KILL, ON_DISCONNECT_DETACH."],
])("the name %s of an enum", (onDisconnect, advice) => {
  const message = JSON.stringify({ shell: "count 1", onDisconnect });

  test("is refused with its field, and is never the default", async () => {
    const error = await call(STREAM, message);
    expect(error?.code).toBe("invalid_argument");
    expect(error?.message).toContain(
      `onDisconnect: ${JSON.stringify(onDisconnect)} is not a name of berth.v1.OnDisconnect. ${advice}`,
    );
    expect(error?.details[0]?.debug.metadata).toEqual({ field: "onDisconnect" });
  });

  test("is ignored if the client asks for that", async () => {
    expect(await call(STREAM, message, { "Berth-Ignore-Unknown-Fields": "true" })).toBeUndefined();
  });
});

const IGNORING = { "berth-ignore-unknown-fields": "true" };

test("a client that has unknown fields ignored gets errors for what the parser would misread", async () => {
  const refusal = async (message: object) =>
    (await call(STREAM, JSON.stringify({ shell: "count 1", ...message, unknown: 1 }), IGNORING))?.message ??
    "none";

  expect(await refusal({})).toBe("none");
  expect(await refusal({ stdin: "hello world" })).toMatch(/^stdin: it holds a blank, so it is not base64/);
  expect(await refusal({ timeout: 5 })).toMatch(/^timeout: 5 is not a duration/);
  const mode = unknownField(WriteFileRequestSchema, { mode: "0644", unknown: 1 }, true);
  expect(mode?.message).toMatch(/^mode: "0644" begins with 0/);
});

test("a byte order mark before the JSON does not hide what is unknown", async () => {
  const marked = (path: string, message: object) => call(path, `\uFEFF${JSON.stringify(message)}`);
  expect(await marked(UNARY, { sandboxId: "sbx_1" })).toBeUndefined();
  expect((await marked(UNARY, { sandboxID: "sbx_1" }))?.message).toContain("sandboxID: berth.v1.");
  const error = await marked(STREAM, { shell: "count 1", onDisconnect: "DETACH" });
  expect(error?.message).toContain('onDisconnect: "DETACH" is not a name');
});

test("enum names in lists are checked; numbers and null are left to the parser", () => {
  const states = (...list: unknown[]) =>
    unknownField(ListSandboxesRequestSchema, { states: list })?.metadata.field;
  expect(states("SANDBOX_STATE_RUNNING", "PAUSED")).toBe("states[1]");
  expect(states("SANDBOX_STATE_RUNNING", 3, 77, null)).toBeUndefined();
  expect(unknownField(ListSandboxesRequestSchema, { states: "PAUSED" })).toBeUndefined();
});

test.each([5, "5m", "5", "1e3s", ""])(
  "%j is not a duration, and the error says what one is",
  (idleTimeout) => {
    const error = unknownField(CreateSandboxRequestSchema, { spec: { idleTimeout } });
    expect(error?.metadata.field).toBe("spec.idleTimeout");
    expect(error?.message).toContain(`${JSON.stringify(idleTimeout)} is not a duration. Give seconds`);
  },
);

test.each([
  [["ls"], "a list"],
  ["ls", "a string"],
  [true, "a boolean"],
])("%j is not a message, and the error shows one", (argv, kind) => {
  const error = unknownField(ExecRequestSchema, { argv });
  expect(error?.metadata.field).toBe("argv");
  expect(error?.message).toContain(`takes an object of berth.v1.Argv, not ${kind}: {"args": …}.`);
  expect(unknownField(ExecRequestSchema, { argv: null })).toBeUndefined();
});

test("an object is not a duration, and the error names the field", () => {
  const error = unknownField(CreateSandboxRequestSchema, { spec: { idleTimeout: { seconds: 5 } } });
  expect(error?.message).toMatch(/^spec\.idleTimeout: an object is not a duration\. Give seconds/);
});

test("what is not a field mask is refused with an example of one", () => {
  const mask = (updateMask: unknown) => unknownField(UpdateSandboxRequestSchema, { updateMask })?.message;
  const advice =
    'is not a field mask. Give a text of names in lowerCamelCase, with commas between them, for instance "labels,idleTimeout".';
  expect(mask("labels,idle_timeout")).toBe(`updateMask: "labels,idle_timeout" ${advice}`);
  expect(mask({ paths: ["labels"] })).toBe(`updateMask: an object ${advice}`);
  expect(mask(["labels"])).toBe(`updateMask: a list ${advice}`);
  for (const known of ["labels,idleTimeout", "", null]) expect(mask(known)).toBeUndefined();
});

test("plain words are not bytes, and the error says how to send them", () => {
  const stdin = (text: unknown) => unknownField(ExecRequestSchema, { stdin: text })?.message;
  expect(stdin("hello world")).toBe(
    'stdin: it holds a blank, so it is not base64. Bytes are base64 in JSON: printf %s "$TEXT" | base64 -w 0',
  );
  for (const base64 of ["aGVsbG8gd29ybGQ=", "aGVs\nbG8", "", null, 5]) expect(stdin(base64)).toBeUndefined();
});

test("an octal mode is refused instead of being read as decimal", () => {
  const mode = (given: unknown) => unknownField(WriteFileRequestSchema, { mode: given })?.message;
  expect(mode("0644")).toBe(
    'mode: "0644" begins with 0, and numbers in JSON are decimal. Octal 0644 is 420.',
  );
  expect(mode("0999")).toBe('mode: "0999" begins with 0, and numbers in JSON are decimal.');
  for (const decimal of [420, "420", "0", 0, null, "0x1a4"]) expect(mode(decimal)).toBeUndefined();
});

test.each(["5s", "0.5s", "-1s", null])("%j is a duration", (idleTimeout) => {
  expect(unknownField(CreateSandboxRequestSchema, { spec: { idleTimeout } })).toBeUndefined();
});

test.each([
  [UNARY, "sandboxId"],
  [STREAM, "shell"],
])("%s refuses JSON that is not UTF-8, and never replaces a byte", async (path, field) => {
  const response = await fetch(server.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: Buffer.from(JSON.stringify({ [field]: "count \xff" }), "latin1"),
  });
  expect(JSON.parse(await response.text())).toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining("The JSON is not UTF-8."),
  });
});

test("both names of a field are known", async () => {
  for (const json of ['{"sandboxId": "a"}', '{"sandbox_id": "a"}'])
    expect(await call(UNARY, json)).toBeUndefined();
});

test("compressed JSON is checked as well", async () => {
  const body = gzipSync('{"nope": 1}');
  const response = await fetch(server.url + UNARY, {
    method: "POST",
    body,
    headers: { "content-type": "application/json", "content-encoding": "gzip" },
  });
  expect(((await response.json()) as { message: string }).message).toContain("nope: ");
  const known = await fetch(server.url + UNARY, {
    method: "POST",
    body: gzipSync('{"sandboxId": "abc"}'),
    headers: { "content-type": "application/json", "content-encoding": "gzip" },
  });
  expect(await known.json()).toMatchObject({ sandbox: { sandboxId: "3" } });
});

test("gRPC with JSON is checked as well", async () => {
  const response = await http2Request(
    server.url,
    { ":path": UNARY, "content-type": "application/grpc+json", te: "trailers" },
    grpcFrame(Buffer.from('{"nope": 1}')),
  );
  expect(response.trailers).toMatchObject({
    "grpc-status": "3",
    "grpc-message": expect.stringMatching(/^nope: /),
  });
});

test("messages in lists and maps are checked; types with a special JSON form are not", () => {
  const spec = (spec: object) => unknownField(CreateSandboxRequestSchema, { spec })?.metadata.field;
  expect(spec({ mounts: [{ hostPath: "/a" }, { readonly: true, readOnlyy: true }] })).toMatch(
    /^spec\.mounts\[\d\]\./,
  );
  const resources = [{ config: { anything: { goes: 1 } }, ttl: "3s" }];
  expect(unknownField(CreateSessionsRequestSchema, { resources })).toBeUndefined();
  // The parser refuses these.
  for (const json of [null, 1, [], { data: { a: 1 } }])
    expect(unknownField(WriteFileRequestSchema, json)).toBeUndefined();
});

test("everything that the library writes is accepted", async () => {
  const client = createClient(
    SandboxService,
    createConnectTransport({ baseUrl: server.url, httpVersion: "1.1", useBinaryFormat: false }),
  );
  expect(await client.getSandbox({ sandboxId: "abc" })).toMatchObject({ sandbox: { sandboxId: "3" } });
  const full = create(WriteFileRequestSchema, { sandboxId: "a", path: "/b", data: new Uint8Array(3) });
  expect(unknownField(WriteFileRequestSchema, toJson(WriteFileRequestSchema, full))).toBeUndefined();
});

import { beforeAll, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { Worker } from "../../support/worker.ts";

const app = useApp();
let worker: Worker;

beforeAll(() => {
  worker = new Worker(app.client, "careless");
});

test.each([
  ["an unknown tool of a known type", "bash:fly", "NOT_FOUND", "TOOL_NOT_FOUND", /There are: bash:run\./],
  ["an unknown type", "hologram:run", "NOT_FOUND", "TOOL_NOT_FOUND", /There are: bash:…, browser:…, code:…/],
  ["a bare name that is unknown", "fly", "NOT_FOUND", "TOOL_NOT_FOUND", /There is no tool "fly"/],
  [
    "a bare name of several tools",
    "run",
    "INVALID_ARGUMENT",
    "INVALID_ARGUMENT",
    /"run" may be bash:run, python:run/,
  ],
  ["no name", "", "INVALID_ARGUMENT", "INVALID_ARGUMENT", /tool: is required/],
])("%s is refused, with the valid choices", async (_, tool, code, reason, message) => {
  const failure = await failureOf(worker.execute(tool, {}));
  expect(failure).toMatchObject({ code, reason });
  expect(failure.message).toMatch(message);
});

test.each([
  ["a number for a text", { command: 5 }, /params\.command: must be a string/],
  ["nothing for a text", {}, /params\.command: is required/],
  ["a text for a number", { command: "true", timeout: "5" }, /params\.timeout: must be a number/],
  ["a negative timeout", { command: "true", timeout: -1 }, /params\.timeout: /],
  ["an unknown param", { command: "true", comand: "x" }, /params: "comand" is not known; is it "command"\?/],
  ["NUL in a command", { command: "a\0b" }, /params\.command: must not contain a NUL byte/],
])("params: %s is refused, and named", async (_, params, message) => {
  const failure = await failureOf(worker.execute("bash:run", params));
  expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", reason: "INVALID_ARGUMENT" });
  expect(failure.message).toMatch(message);
});

test("an invalid create is refused before anything is made", async () => {
  const create = (resources: object[]) =>
    failureOf(app.client.call("SessionService/CreateSessions", { worker_id: "careless", resources }));
  expect(await create([])).toMatchObject({ message: expect.stringMatching(/^resources: is empty/) });
  expect(await create([{ resource_type: "bash" }, { resource_type: "bash" }])).toMatchObject({
    message: expect.stringContaining('the type "bash" twice'),
  });
  expect(await create([{ resource_type: "bash", custom_name: "../x" }])).toMatchObject({
    message: expect.stringContaining("resources[0].custom_name"),
  });
  expect(await create([{ resource_type: "bash", sandbox_id: "a", workspace_id: "b" }])).toMatchObject({
    message: expect.stringContaining("resources[0].workspace_id"),
  });
  expect(await create([{ resource_type: "bash", ttl: { seconds: -1 } }])).toMatchObject({
    message: expect.stringContaining("resources[0].ttl"),
  });
  expect(await worker.list()).toEqual([]);
});

test.each([
  [
    "a variable that is long in bytes alone",
    { LONG: "я".repeat(100_000) },
    /config\.env: a variable has at most 131072 bytes/,
  ],
  [
    "many variables",
    Object.fromEntries(Array.from({ length: 1025 }, (_, i) => [`V${i}`, ""])),
    /at most 1024 /,
  ],
  [
    "too much together",
    Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`V${i}`, "x".repeat(100_000)])),
    /at most 786432 bytes: pass more through a file/,
  ],
])("env: %s is refused", async (_, env, message) => {
  const { failure } = await worker.create("bash", { env });
  expect(failure).toMatchObject({ detail: { reason: "ERROR_REASON_INVALID_ARGUMENT" } });
  expect(failure?.message).toMatch(message);
  await worker.destroy();
});

test("a batch has limits, and all of its calls are validated before one runs", async () => {
  const call = { tool: "bash:run" };
  const batch = (request: object) =>
    failureOf(app.client.call("SessionService/ExecuteToolBatch", { worker_id: "careless", ...request }));
  expect((await batch({ calls: [] })).message).toMatch(/calls: is empty/);
  expect((await batch({ calls: Array(257).fill(call) })).message).toMatch(/at most 256/);
  expect((await batch({ calls: [call, { ...call, timeout: { seconds: -1 } }] })).message).toMatch(
    /calls\[1\]\.timeout/,
  );
});

test("tools are listed with the schemas of their params", async () => {
  const { tools, resource_types: types } = await worker.tools();
  expect(tools.map(({ name }) => name)).toEqual([
    "bash:run",
    "browser:back",
    "browser:click",
    "browser:content",
    "browser:download",
    "browser:evaluate",
    "browser:forward",
    "browser:goto",
    "browser:hover",
    "browser:key",
    "browser:reload",
    "browser:screenshot",
    "browser:scroll",
    "browser:select",
    "browser:tabs",
    "browser:text",
    "browser:tree",
    "browser:type",
    "browser:upload",
    "browser:wait_for",
    "code:execute",
    "files:edit",
    "files:glob",
    "files:grep",
    "files:read",
    "files:write",
    "python:run",
    "vm:click",
    "vm:clipboard",
    "vm:done",
    "vm:double_click",
    "vm:drag",
    "vm:fail",
    "vm:hotkey",
    "vm:key",
    "vm:key_down",
    "vm:key_up",
    "vm:launch",
    "vm:mouse_down",
    "vm:mouse_up",
    "vm:move",
    "vm:right_click",
    "vm:screenshot",
    "vm:scroll",
    "vm:type",
    "vm:wait",
    "vm:windows",
  ]);
  expect(types.map(({ name }) => name)).toEqual(["bash", "browser", "code", "files", "python", "vm"]);
  expect(tools[0]?.schema).toMatchObject({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    required: ["command"],
    additionalProperties: false,
    properties: { command: { type: "string" }, timeout: { type: "number" } },
  });
  const read = tools.find(({ name }) => name === "files:read");
  expect(read?.schema).toMatchObject({ required: ["file_path"], properties: { limit: { default: 2000 } } });
});

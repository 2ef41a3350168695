import http from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { expectContainers, useApp } from "../support/app.ts";
import { type Failure, failureOf, type Request } from "../support/client.ts";
import { MISSING_IMAGE } from "../support/images.ts";
import { seconds } from "../support/wire.ts";

const MIB = 1024 * 1024;
const TOO_LONG = { seconds: 24 * 86_400 + 1, nanos: 0 };

const app = useApp({ maxSandboxes: 2 });
/** A sandbox that every call may name, and processes in it. */
let id = "";
let ended = "";
let open = "";
let terminal = "";

beforeAll(async () => {
  ({ sandbox_id: id } = await app.client.createSandbox());
  ended = (await app.client.run(id, "printf 12345")).process_id;
  open = await app.client.exec(id, ["cat"], { keep_stdin_open: true }).processId;
  terminal = await app.client.exec(id, ["sleep", "600"], { terminal: { columns: 80, rows: 24 } }).processId;
});
afterAll(async () => {
  await app.client.call("SandboxService/DeleteSandbox", { sandbox_id: id, grace: seconds(0) });
});

/** After each refusal the service works as before, and nothing more is there. */
afterEach(async () => {
  expect(await app.client.output(id, "echo fine")).toBe("fine\n");
  expect(await app.client.call("SandboxService/GetStats")).toMatchObject({ total_sandboxes: 1 });
  await expectContainers(app.instance, 1);
});

interface Refusal {
  readonly because: string;
  readonly request: Request | (() => Request);
  readonly code?: string;
  readonly reason?: string;
  /** What the message has to name: the field, or what to change. */
  readonly says: string | RegExp;
}

function check(failure: Failure, { code, reason, says }: Refusal): void {
  expect(failure).toMatchObject({
    code: code ?? "INVALID_ARGUMENT",
    reason: reason ?? code ?? "INVALID_ARGUMENT",
    message: typeof says === "string" ? expect.stringContaining(says) : expect.stringMatching(says),
  });
  expect(failure.message).not.toMatch(/\bat \S+ \(|node_modules|\/src\//);
}

function requestOf({ request }: Refusal): Request {
  return typeof request === "function" ? request() : request;
}

describe("CreateSandbox refuses", () => {
  const spec = (
    because: string,
    says: string | RegExp,
    bad: Request,
    more: Partial<Refusal> = {},
  ): Refusal => ({
    because,
    says,
    request: { spec: bad },
    ...more,
  });
  const resource = (because: string, field: string, value: number): Refusal =>
    spec(because, `spec.resources.${field}`, { resources: { [field]: value } });
  const hostMount = (because: string, path: string, more: Partial<Refusal> = {}): Refusal =>
    spec(
      because,
      path,
      { mounts: [{ host_path: path, target: "/mnt" }] },
      {
        code: "PERMISSION_DENIED",
        reason: "NOT_ALLOWED",
        ...more,
      },
    );
  const target = (because: string, path: string): Refusal =>
    spec(because, "spec.mounts[0].target", { mounts: [{ host_path: "/tmp", target: path }] });
  const precondition = (reason: string): Partial<Refusal> => ({ code: "FAILED_PRECONDITION", reason });

  const cases: readonly Refusal[] = [
    spec("an unknown image", MISSING_IMAGE, { image: MISSING_IMAGE }, precondition("IMAGE_UNAVAILABLE")),
    spec("an image's name that is none", /image/i, { image: "Not An Image!" }, { code: undefined }),
    resource("negative memory", "memory_bytes", -1),
    resource("too little memory", "memory_bytes", 1),
    resource("more memory than there is", "memory_bytes", 2 ** 52),
    resource("negative CPU", "cpu_millis", -1),
    resource("more CPU than there is", "cpu_millis", 2_000_000_000),
    resource("a negative number of processes", "pids_limit", -1),
    resource("a huge number of processes", "pids_limit", 2_000_000_000),
    resource("a negative disk", "disk_bytes", -1),
    resource("a huge disk", "disk_bytes", 2 ** 53),
    spec(
      "a disk bound here",
      "spec.resources.disk_bytes",
      { resources: { disk_bytes: 1e9 } },
      precondition("UNSUPPORTED"),
    ),
    spec("NUL in a variable's value", 'spec.env["A"]', { env: { A: "x\0y" } }),
    spec("NUL in a variable's name", "spec.env", { env: { "A\0B": "x" } }),
    spec("= in a variable's name", "spec.env", { env: { "A=B": "x" } }),
    spec("a variable without a name", "spec.env", { env: { "": "x" } }),
    spec("a relative working directory", "spec.working_dir", { working_dir: "here" }),
    spec("a working directory with ..", "spec.working_dir", { working_dir: "/a/../../etc" }),
    spec("NUL in the working directory", "spec.working_dir", { working_dir: "/a\0b" }),
    spec("a reserved label", "spec.labels", { labels: { "berth.instance": "x" } }),
    spec("a label that is too long", "spec.labels", { labels: { ["x".repeat(64)]: "x" } }),
    spec("a negative idle timeout", "spec.idle_timeout", { idle_timeout: seconds(-1) }),
    spec("an idle timeout over 24 days", "spec.idle_timeout", { idle_timeout: TOO_LONG }),
    spec("an idle timeout of zero", "spec.idle_timeout", { idle_timeout: seconds(0) }),
    spec("a negative lifetime", "spec.max_lifetime", { max_lifetime: seconds(-0.5) }),
    spec("a lifetime over 24 days", "spec.max_lifetime", { max_lifetime: TOO_LONG }),
    spec("a command timeout over 24 days", "spec.command_timeout", { command_timeout: TOO_LONG }),
    spec("a duration whose parts disagree", "spec.command_timeout", {
      command_timeout: { seconds: 1, nanos: 2_000_000_000 },
    }),
    spec(
      "a runtime that is not allowed",
      "runtime",
      { runtime: "kata" },
      { code: "PERMISSION_DENIED", reason: "NOT_ALLOWED" },
    ),
    spec("a network that does not exist", "spec.network.mode", { network: { mode: 77 } }),
    hostMount("the host's root", "/"),
    hostMount("a host path that is not allowed", "/etc"),
    hostMount("the Docker socket", "/var/run/docker.sock"),
    hostMount("the directory of the Docker socket", "/var/run"),
    hostMount("a host path with ..", "/tmp/../etc", {
      code: undefined,
      reason: undefined,
      says: "spec.mounts[0].host_path",
    }),
    hostMount("a relative host path", "tmp", {
      code: undefined,
      reason: undefined,
      says: "spec.mounts[0].host_path",
    }),
    target("a relative target", "mnt"),
    target("a target with ..", "/mnt/../etc"),
    target("the root as target", "/"),
    spec("a mount without a source", "spec.mounts[0]", { mounts: [{ target: "/mnt" }] }),
    spec(
      "an unknown workspace",
      /workspace/,
      { mounts: [{ workspace_id: "w", target: "/mnt" }] },
      { code: "NOT_FOUND", reason: "WORKSPACE_NOT_FOUND" },
    ),
    spec("a user that the image does not have", "user", { user: "nobody-of-that-name" }),
    { because: "a control character in the id", request: { sandbox_id: "a\nb" }, says: "sandbox_id" },
    { because: "an id that is too long", request: { sandbox_id: "x".repeat(257) }, says: "sandbox_id" },
    {
      because: "a request id that is too long",
      request: { request_id: "x".repeat(257) },
      says: "request_id",
    },
  ];

  for (const refusal of cases) {
    test(refusal.because, async () => {
      check(await failureOf(app.client.call("SandboxService/CreateSandbox", requestOf(refusal))), refusal);
    });
  }
});

describe("Exec and RunCommand refuse", () => {
  const cases: readonly Refusal[] = [
    { because: "no command", request: {}, says: "command" },
    { because: "an empty line", request: { shell: "" }, says: "shell" },
    { because: "an empty argument list", request: { argv: { args: [] } }, says: "argv" },
    { because: "an empty program", request: { argv: { args: ["", "x"] } }, says: "argv" },
    { because: "NUL in the line", request: { shell: "echo a\0b" }, says: "shell" },
    { because: "NUL in an argument", request: { argv: { args: ["echo", "a\0b"] } }, says: "argv.args[1]" },
    { because: "a line that is too long", request: { shell: `: ${"x".repeat(131_072)}` }, says: "shell" },
    {
      because: "an argument list that is too long",
      request: { argv: { args: ["true", ...Array.from({ length: 20 }, () => "x".repeat(100_000))] } },
      says: "argv",
    },
    { because: "NUL in a variable", request: { shell: "true", env: { A: "\0" } }, says: 'env["A"]' },
    { because: "= in a variable's name", request: { shell: "true", env: { "A=B": "" } }, says: "env" },
    {
      because: "NUL in the working directory",
      request: { shell: "true", working_dir: "/a\0b" },
      says: "working_dir",
    },
    {
      because: "a missing working directory",
      request: { shell: "true", working_dir: "/not/there" },
      says: "working_dir",
    },
    {
      because: "a file as working directory",
      request: { shell: "true", working_dir: "/etc/passwd" },
      says: "working_dir",
    },
    {
      because: "a relative directory that leaves",
      request: { shell: "true", working_dir: "../etc" },
      says: "working_dir",
    },
    {
      because: "a directory of /proc",
      request: { shell: "true", working_dir: "/proc/self/fd/8" },
      says: "working_dir",
    },
    { because: "an unknown user", request: { shell: "true", user: "nobody-of-that-name" }, says: "user" },
    { because: "a negative timeout", request: { shell: "true", timeout: seconds(-1) }, says: "timeout" },
    { because: "a timeout over 24 days", request: { shell: "true", timeout: TOO_LONG }, says: "timeout" },
    { because: "a timeout of zero", request: { shell: "true", timeout: seconds(0) }, says: "timeout" },
    { because: "a negative generation", request: { shell: "true", generation: -1 }, says: "generation" },
    {
      because: "another generation",
      request: { shell: "true", generation: 2 },
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
      says: "generation",
    },
    {
      because: "an unknown sandbox",
      request: { shell: "true", sandbox_id: "sbx_nothing" },
      code: "NOT_FOUND",
      reason: "SANDBOX_NOT_FOUND",
      says: "sbx_nothing",
    },
    { because: "no sandbox", request: { shell: "true", sandbox_id: "" }, says: "sandbox_id" },
    {
      because: "a request id with a control character",
      request: { shell: "true", request_id: "a\u0007" },
      says: "request_id",
    },
  ];
  for (const refusal of cases) {
    test(refusal.because, async () => {
      const request = { sandbox_id: id, ...requestOf(refusal) };
      check(await failureOf(app.client.call("ProcessService/RunCommand", request)), refusal);
      check(await failureOf(resultOf(request)), refusal);
    });
  }

  const execOnly: readonly Refusal[] = [
    { because: "a negative output limit", request: { output_limit_bytes: -1 }, says: "output_limit_bytes" },
    { because: "a negative grace", request: { disconnect_grace: seconds(-1) }, says: "disconnect_grace" },
    { because: "a grace over 24 days", request: { disconnect_grace: TOO_LONG }, says: "disconnect_grace" },
    { because: "an unknown behaviour on disconnect", request: { on_disconnect: 9 }, says: "on_disconnect" },
    {
      because: "a terminal that is too wide",
      request: { terminal: { columns: 10_001 } },
      says: "terminal.columns",
    },
    { because: "a terminal of negative height", request: { terminal: { rows: -1 } }, says: "terminal.rows" },
  ];
  for (const refusal of execOnly) {
    test(`${refusal.because} (Exec)`, async () => {
      const request = { sandbox_id: id, shell: "true", ...requestOf(refusal) };
      check(await failureOf(resultOf(request)), refusal);
    });
  }

  test("more output than there may be (RunCommand)", async () => {
    for (const size of [-1, 16 * MIB + 1]) {
      const failure = await failureOf(app.client.run(id, "true", { max_output_bytes: size }));
      check(failure, { because: "", request: {}, says: "max_output_bytes" });
    }
  });

  async function resultOf(request: Request): Promise<unknown> {
    const { sandbox_id: sandboxId, ...more } = request;
    return app.client.exec(String(sandboxId), "true", { shell: undefined, ...more }).result;
  }
});

describe("calls about a process refuse", () => {
  const state = { code: "FAILED_PRECONDITION", reason: "PROCESS_STATE" };
  const range = { code: "OUT_OF_RANGE", reason: "OFFSET_OUT_OF_RANGE" };
  const unknown = { code: "NOT_FOUND", reason: "PROCESS_NOT_FOUND", says: "prc_nothing" };
  const cases: readonly (Refusal & { readonly method: Parameters<typeof app.client.call>[0] })[] = [
    ...(["WriteStdin", "SignalProcess", "ResizeTerminal", "GetProcess"] as const).map((method) => ({
      method: `ProcessService/${method}` as const,
      because: "an unknown id",
      request: { process_id: "prc_nothing", signal: 15, columns: 80, rows: 24 },
      ...unknown,
    })),
    { method: "ProcessService/GetProcess", because: "no id", request: {}, says: "process_id" },
    {
      method: "ProcessService/SignalProcess",
      because: "signal 0",
      request: () => ({ process_id: open, signal: 0 }),
      says: "signal",
    },
    {
      method: "ProcessService/SignalProcess",
      because: "signal 65",
      request: () => ({ process_id: open, signal: 65 }),
      says: "signal",
    },
    {
      method: "ProcessService/SignalProcess",
      because: "signal -9",
      request: () => ({ process_id: open, signal: -9 }),
      says: "signal",
    },
    {
      method: "ProcessService/SignalProcess",
      because: "a process that has ended",
      request: () => ({ process_id: ended, signal: 15 }),
      says: "ended",
      ...state,
    },
    {
      method: "ProcessService/ResizeTerminal",
      because: "a process without a terminal",
      request: () => ({ process_id: open, columns: 80, rows: 24 }),
      says: "terminal",
      ...state,
    },
    {
      method: "ProcessService/ResizeTerminal",
      because: "no size",
      request: () => ({ process_id: terminal }),
      says: "columns",
    },
    {
      method: "ProcessService/ResizeTerminal",
      because: "a size that is too large",
      request: () => ({ process_id: terminal, columns: 80, rows: 10_001 }),
      says: "rows",
    },
    {
      method: "ProcessService/WriteStdin",
      because: "stdin of a process that has ended",
      request: () => ({ process_id: ended, data: Buffer.from("x") }),
      says: "ended",
      ...state,
    },
    {
      method: "ProcessService/WriteStdin",
      because: "bytes beyond a hole",
      request: () => ({ process_id: open, offset: 7, data: Buffer.from("x") }),
      says: "offset",
      ...range,
    },
    {
      method: "ProcessService/WriteStdin",
      because: "a negative offset",
      request: () => ({ process_id: open, offset: -1 }),
      says: "offset",
    },
    {
      method: "ProcessService/ListProcesses",
      because: "an unknown sandbox",
      request: { sandbox_id: "sbx_nothing" },
      says: "sbx_nothing",
      code: "NOT_FOUND",
      reason: "SANDBOX_NOT_FOUND",
    },
    {
      method: "ProcessService/ListProcesses",
      because: "a negative page",
      request: () => ({ sandbox_id: id, page_size: -1 }),
      says: "page_size",
    },
    {
      method: "ProcessService/ListProcesses",
      because: "a token that is none",
      request: () => ({ sandbox_id: id, page_token: "not a token" }),
      says: "page_token",
    },
  ];
  for (const refusal of cases) {
    test(`${refusal.method.split("/")[1]}: ${refusal.because}`, async () => {
      check(await failureOf(app.client.call(refusal.method, requestOf(refusal))), refusal);
    });
  }

  test("WriteStdin: stdin that was never kept open", async () => {
    const running = app.client.exec(id, "sleep 600");
    const request = { process_id: await running.processId, data: Buffer.from("x") };
    check(await failureOf(app.client.call("ProcessService/WriteStdin", request)), {
      because: "",
      request,
      says: "keep_stdin_open",
      ...state,
    });
    running.cancel();
  });

  test("WriteStdin: stdin that was closed", async () => {
    const running = app.client.exec(id, "cat; sleep 600", { keep_stdin_open: true });
    const process_id = await running.processId;
    await app.client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("x"), close: true });
    const request = { process_id, offset: 1, data: Buffer.from("y") };
    check(await failureOf(app.client.call("ProcessService/WriteStdin", request)), {
      because: "",
      request,
      says: "closed",
      ...state,
    });
    running.cancel();
  });

  test("AttachProcess: an offset beyond the end, a negative one, an unknown process", async () => {
    const beyond = await failureOf(app.client.attach(ended, { stdout: 6 }).result);
    check(beyond, { because: "", request: {}, says: "stdout_offset", ...range });
    const other = await failureOf(app.client.attach(ended, { stderr: 1 }).result);
    check(other, { because: "", request: {}, says: "stderr_offset", ...range });
    const negative = await failureOf(app.client.attach(ended, { stdout: -1 }).result);
    check(negative, { because: "", request: {}, says: "stdout_offset" });
    check(await failureOf(app.client.attach("prc_nothing").result), { because: "", request: {}, ...unknown });
  });
});

describe("calls about a sandbox refuse", () => {
  const unknown = { code: "NOT_FOUND", reason: "SANDBOX_NOT_FOUND", says: "sbx_nothing" };
  const mask = (...paths: string[]): Request => ({ update_mask: { paths } });
  const cases: readonly (Refusal & { readonly method: Parameters<typeof app.client.call>[0] })[] = [
    ...(["GetSandbox", "KeepAliveSandbox", "PauseSandbox", "ResumeSandbox", "UpdateSandbox"] as const).map(
      (method) => ({
        method: `SandboxService/${method}` as const,
        because: "an unknown id",
        request: { sandbox_id: "sbx_nothing", ...(method === "UpdateSandbox" && mask("labels")) },
        ...unknown,
      }),
    ),
    ...(["GetSandbox", "KeepAliveSandbox", "PauseSandbox", "DeleteSandbox"] as const).map((method) => ({
      method: `SandboxService/${method}` as const,
      because: "no id",
      request: {},
      says: "sandbox_id",
    })),
    {
      method: "SandboxService/DeleteSandbox",
      because: "a negative grace",
      request: () => ({ sandbox_id: id, grace: seconds(-1) }),
      says: "grace",
    },
    {
      method: "SandboxService/DeleteSandbox",
      because: "a grace over 24 days",
      request: () => ({ sandbox_id: id, grace: TOO_LONG }),
      says: "grace",
    },
    {
      method: "SandboxService/DeleteSandbox",
      because: "another generation",
      request: () => ({ sandbox_id: id, generation: 9 }),
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
      says: "generation",
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "no mask",
      request: () => ({ sandbox_id: id, labels: { a: "b" } }),
      says: "update_mask",
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a field that cannot change",
      request: () => ({ sandbox_id: id, ...mask("image") }),
      says: /update_mask.*image.*labels/,
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a field that does not exist",
      request: () => ({ sandbox_id: id, ...mask("labels", "no_such_field") }),
      says: /update_mask.*no_such_field/,
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a reserved label",
      request: () => ({ sandbox_id: id, ...mask("labels"), labels: { "berth.owner": "me" } }),
      says: "labels",
    },
    {
      method: "SandboxService/UpdateSandbox",
      because: "a negative timeout",
      request: () => ({ sandbox_id: id, ...mask("idle_timeout"), idle_timeout: seconds(-1) }),
      says: "idle_timeout",
    },
    {
      method: "SandboxService/ListSandboxes",
      because: "a negative page",
      request: { page_size: -1 },
      says: "page_size",
    },
    {
      method: "SandboxService/ListSandboxes",
      because: "a token that is none",
      request: { page_token: "%%%" },
      says: "page_token",
    },
    {
      method: "SandboxService/ListSandboxes",
      because: "a state that does not exist",
      request: { states: [77] },
      says: "states",
    },
  ];
  for (const refusal of cases) {
    test(`${refusal.method.split("/")[1]}: ${refusal.because}`, async () => {
      check(await failureOf(app.client.call(refusal.method, requestOf(refusal))), refusal);
    });
  }

  test("WatchEvents: a sequence that was never reached, and a negative one", async () => {
    const watch = async (request: Request): Promise<unknown> => {
      const items: unknown[] = [];
      for await (const item of app.client.stream("SandboxService/WatchEvents", request)) items.push(item);
      return items;
    };
    check(await failureOf(watch({ after_sequence: 1_000_000 })), {
      because: "",
      request: {},
      says: "after_sequence",
      code: "OUT_OF_RANGE",
      reason: "OFFSET_OUT_OF_RANGE",
    });
    check(await failureOf(watch({ after_sequence: -1 })), {
      because: "",
      request: {},
      says: "after_sequence",
    });
  });

  test("a request id that was used for something else", async () => {
    const request = { request_id: "used", sandbox_id: id, ...mask("labels"), labels: { a: "b" } };
    await app.client.call("SandboxService/UpdateSandbox", request);
    const other = { ...request, labels: { a: "c" } };
    check(await failureOf(app.client.call("SandboxService/UpdateSandbox", other)), {
      because: "",
      request,
      code: "ALREADY_EXISTS",
      reason: "REQUEST_ID_REUSED",
      says: "request_id",
    });
  });
});

describe("the port refuses", () => {
  test("a message of 5 MiB", async () => {
    const call = app.client.run(id, "cat", { stdin: Buffer.alloc(5 * MIB) });
    check(await failureOf(call), {
      because: "",
      request: {},
      code: "RESOURCE_EXHAUSTED",
      reason: "MESSAGE_TOO_LARGE",
      says: String(4 * MIB),
    });
  });

  test("bytes that are no message", async () => {
    const broken = Buffer.from("0affffffffffffffffffffff", "hex");
    const failure = await failureOf(app.client.raw("/berth.v1.SandboxService/GetSandbox", broken));
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", reason: "INVALID_ARGUMENT" });
    expect(failure.message).toMatch(/\w{4}/);
  });

  test("text that is no UTF-8", async () => {
    const broken = Buffer.from([0x0a, 0x02, 0xc3, 0x28]);
    const failure = await failureOf(app.client.raw("/berth.v1.SandboxService/GetSandbox", broken));
    expect(["INVALID_ARGUMENT", "NOT_FOUND"]).toContain(failure.code);
  });

  test("methods and services that it does not have", async () => {
    for (const path of ["/berth.v1.SandboxService/FlySandbox", "/berth.v1.FlyingService/Fly"]) {
      const failure = await failureOf(app.client.raw(path, Buffer.alloc(0)));
      expect(failure).toMatchObject({ code: "UNIMPLEMENTED", message: expect.stringContaining("Fly") });
    }
  });

  test("a foreign Host and a foreign Origin", async () => {
    const path = "/berth.v1.SandboxService/GetStats";
    const json = { "content-type": "application/json" };
    expect(await post(path, json)).toMatchObject({ status: 200 });
    expect(await post(path, { ...json, host: "evil.example:7070" })).toMatchObject({
      status: 403,
      body: expect.stringContaining("evil.example"),
    });
    expect(await post(path, { ...json, origin: "https://evil.example" })).toMatchObject({
      status: 403,
      body: expect.stringContaining("evil.example"),
    });
  });

  test("a form that a web page could post", async () => {
    const answer = await post("/berth.v1.SandboxService/GetStats", { "content-type": "text/plain" });
    expect(answer).toMatchObject({ status: 415, body: expect.stringContaining("application/json") });
  });
});

function post(path: string, headers: http.OutgoingHttpHeaders): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      `http://${app.app.address}${path}`,
      { method: "POST", headers },
      (response) => {
        let body = "";
        response.setEncoding("utf8").on("data", (text) => {
          body += text;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
      },
    );
    request.on("error", reject);
    request.end("{}");
  });
}

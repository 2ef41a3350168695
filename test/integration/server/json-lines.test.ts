import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const run = promisify(execFile);

const EXEC = "berth.v1.ProcessService/Exec";
const UPLOAD = "test.UploadService/Upload";
const JSON_TYPE = "application/json";

let server: TestServer;
beforeEach(async () => {
  server = await startTestServer({ limits: { readMaxBytes: 100_000 } });
});
afterEach(() => server[Symbol.asyncDispose]());

describe.each(["--http1.1", "--http2-prior-knowledge"])("curl %s", (version) => {
  const argumentsOf = (body: string, { method = EXEC, type = JSON_TYPE, more = [] as string[] } = {}) => [
    ...["-sS", "--no-buffer", version, "-H", `content-type: ${type}`, "--data-binary", body],
    ...more,
    `${server.url}/${method}`,
  ];

  async function curl(body: string, options?: Parameters<typeof argumentsOf>[1]) {
    const written = "\n%{http_code} %{content_type}";
    const { stdout } = await run("curl", ["-w", written, ...argumentsOf(body, options)]);
    const end = stdout.lastIndexOf("\n");
    const [status, type] = stdout.slice(end + 1).split(" ");
    return { status, type, body: stdout.slice(0, end) };
  }
  const shell = (line: string, options?: Parameters<typeof argumentsOf>[1]) =>
    curl(JSON.stringify({ shell: line }), options);
  const linesOf = ({ body }: { body: string }) =>
    body
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, object>);

  test("reads a stream as one message per line", async () => {
    const answer = await shell("count 3");
    expect(answer).toMatchObject({ status: "200", type: "application/x-ndjson" });
    const data = Buffer.alloc(10, "x").toString("base64");
    expect(linesOf(answer)).toEqual([
      { started: expect.objectContaining({ processId: "prc_1" }) },
      ...["0", "10", "20"].map((offset) => ({ output: expect.objectContaining({ offset, data }) })),
      { exited: expect.objectContaining({ exitCode: 7 }) },
    ]);
    expect(server.record.open).toBe(0);
  });

  test("reads an error as the last line", async () => {
    const answer = await shell("fail SANDBOX_TERMINATED");
    expect(answer.status).toBe("200");
    expect(linesOf(answer)).toEqual([
      { started: expect.anything() },
      {
        code: "aborted",
        message: "failed: SANDBOX_TERMINATED",
        details: [expect.objectContaining({ type: "berth.v1.ErrorDetail", value: expect.any(String) })],
      },
    ]);
    // On a busy machine the deadline may come before the first message.
    const late = await eventually(async () => {
      const lines = linesOf(await shell("hang", { more: ["-H", "connect-timeout-ms: 200"] }));
      return lines.length > 1 && lines;
    });
    expect(late).toEqual([
      { started: expect.anything() },
      expect.objectContaining({ code: "deadline_exceeded" }),
    ]);
  });

  test("reads an error before the first message as a unary call's", async () => {
    const refused = await shell("refuse SANDBOX_NOT_FOUND");
    expect(refused).toMatchObject({ status: "404", type: JSON_TYPE });
    expect(linesOf(refused)).toMatchObject([{ code: "not_found", message: "failed: SANDBOX_NOT_FOUND" }]);
    expect(linesOf(await curl('{"shel": "count 1"}'))).toMatchObject([
      { code: "invalid_argument", message: expect.stringContaining('Did you mean "shell"?') },
    ]);
    const ignoring = { more: ["-H", "berth-ignore-unknown-fields: true"] };
    expect(linesOf(await curl('{"shel": "count 1"}', ignoring)).at(-1)).toHaveProperty("exited");
    for (const [body, status, message] of [
      [" ".repeat(100_001), "429", "larger than the 100000 bytes"],
      [`{"shell": [${"0,".repeat(9000)}0]}`, "429", "more than the 8000 values"],
      ["", "400", "JSON"],
      ["[]", "400", "ExecRequest"],
    ] as const) {
      const answer = await curl(body);
      expect(answer).toMatchObject({ status, type: JSON_TYPE });
      expect(linesOf(answer)).toMatchObject([{ message: expect.stringContaining(message) }]);
    }
    expect(server.record.begun).toBe(2);
  });

  test("sends gzip, and no Brotli", async () => {
    const post = async (encoding: string) => {
      const url = `${server.url}/${EXEC}`;
      const headers = { "content-type": `${JSON_TYPE}; charset=utf-8`, "content-encoding": encoding };
      const response = await fetch(url, { method: "POST", headers, body: gzipSync('{"shell": "count 1"}') });
      return { status: response.status, body: await response.text() };
    };
    expect(linesOf(await post("gzip")).at(-1)).toHaveProperty("exited");
    expect(await post("br")).toMatchObject({ status: 501, body: expect.stringContaining("gzip") });
  });

  test("reads each line as it arrives, and ends the handler when it leaves", async () => {
    const child = spawn("curl", argumentsOf(JSON.stringify({ shell: "hang" })));
    try {
      const [line] = (await once(createInterface(child.stdout), "line")) as [string];
      expect(JSON.parse(line)).toHaveProperty("started");
      expect(server.record.open).toBe(1);
    } finally {
      child.kill("SIGINT");
    }
    await eventually(() => server.record.open === 0);
    expect(server.record.abortReason).toMatchObject({ reason: "CANCELED" });
  });

  test("makes the handler wait while it does not read", async () => {
    const child = spawn("curl", argumentsOf(JSON.stringify({ shell: "flood" })));
    try {
      await once(child.stdout, "readable");
      let produced = -1;
      for (let calm = 0; calm < 5; calm = server.record.produced === produced ? calm + 1 : 0) {
        produced = server.record.produced;
        await sleep(20);
      }
      expect(produced * 65_536).toBeLessThan(32 * 1024 * 1024);
      expect(server.record.open).toBe(1);
    } finally {
      child.kill("SIGINT");
    }
    await eventually(() => server.record.open === 0);
  });

  test("learns the right content type if it sends the one with envelopes", async () => {
    const type = "application/connect+json";
    for (const body of ['{"shell": "count 1"}', "{}", "\n{}", "[]"]) {
      const answer = await curl(body, { type });
      expect(answer).toMatchObject({ status: "400", type: JSON_TYPE });
      expect(linesOf(answer)).toMatchObject([
        {
          code: "invalid_argument",
          message: expect.stringContaining('Send it with "content-type: application/json"'),
        },
      ]);
    }
    const upload = await curl('"AAAA"', { type, method: UPLOAD });
    expect(upload.status).toBe("400");
    expect(linesOf(upload)).toMatchObject([{ message: expect.stringContaining("in front of each message") }]);
    expect(server.record.begun).toBe(0);
    const plain = await curl('"AAAA"', { method: UPLOAD });
    expect(plain).toMatchObject({
      status: "415",
      body: expect.stringContaining("use a client of gRPC or Connect"),
    });
  });
});

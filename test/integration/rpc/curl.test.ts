import { execFile } from "node:child_process";
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../../support/server/test-server.ts";

const run = promisify(execFile);

describe.each(["--http1.1", "--http2-prior-knowledge"])("curl %s", (version) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  async function curl(method: string, body: string, ...more: string[]) {
    const url = `${server.url}/berth.v1.SandboxService/${method}`;
    const json = ["-H", "content-type: application/json", "--data-binary", body];
    const { stdout } = await run("curl", ["-sS", version, ...json, "-w", "\n%{http_code}", ...more, url]);
    const [answer = "", status] = stdout.split("\n");
    return { status, answer: JSON.parse(answer) };
  }

  test("calls with JSON", async () => {
    expect(await curl("GetStats", "{}")).toMatchObject({
      status: "200",
      answer: { totalSandboxes: 3, maxSandboxes: 100 },
    });
    expect(await curl("GetSandbox", '{"sandbox_id": "abc"}')).toMatchObject({ status: "200" });
    expect(await curl("GetSandbox", '{"sandboxId": "abc"}')).toMatchObject({ status: "200" });
  });

  test("reads errors", async () => {
    expect(await curl("GetStats", "{}", "-H", "x-test: fail SANDBOX_NOT_FOUND")).toEqual({
      status: "404",
      answer: {
        code: "not_found",
        message: "failed: SANDBOX_NOT_FOUND",
        details: [
          {
            type: "berth.v1.ErrorDetail",
            value: expect.any(String),
            debug: {
              reason: "ERROR_REASON_SANDBOX_NOT_FOUND",
              metadata: { sandbox_id: "sbx_1" },
              retryAfter: "1.500s",
            },
          },
        ],
      },
    });
    expect(await curl("Nope", "{}")).toMatchObject({ status: "404", answer: { code: "unimplemented" } });
  });

  test("gets its answer also if that is sent before its request is read", async () => {
    const refused = async (...more: string[]) => {
      const request = [version, "-H", "content-type: application/json", "--data-binary", "{}", ...more];
      const { stdout } = await run("curl", ["-sS", "-o", "/dev/null", "-w", "%{http_code}", ...request]);
      return stdout;
    };
    for (let index = 0; index < 20; index++) {
      expect(await refused(`${server.url}/berth.v1.SandboxService/Nope`)).toBe("404");
      expect(
        await refused("-H", "host: evil.example", `${server.url}/berth.v1.SandboxService/GetStats`),
      ).toBe("403");
      expect(
        await refused("-H", "content-type: text/plain", `${server.url}/berth.v1.SandboxService/Nope`),
      ).toBe("404");
    }
  });

  test("sends gzip", async () => {
    const dir = await fs.mkdtemp(path.join(os.tmpdir(), "berth-curl-"));
    try {
      const file = path.join(dir, "body.gz");
      await fs.writeFile(file, gzipSync("{}"));
      const answer = await curl("GetStats", `@${file}`, "-H", "content-encoding: gzip");
      expect(answer).toMatchObject({ status: "200" });
    } finally {
      await fs.rm(dir, { recursive: true });
    }
  });
});

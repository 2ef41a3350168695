import { afterAll, beforeAll, expect, test } from "vitest";
import { MAIN, runProgram, ServeProcess } from "../../support/program.ts";

/** Writes to stderr, at the end, which of Node's modules and which files were loaded. */
const TELL = `data:text/javascript,${encodeURIComponent(`
import module from "node:module";
process.on("exit", () => {
  console.error([...process.moduleLoadList, ...Object.keys(module._cache)].join("\\n"));
});`)}`;

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start(["--engine", "bubblewrap"]);
});
afterAll(() => service.stop());

async function loadedBy(...args: string[]): Promise<string> {
  const { exitCode, stderr } = await runProgram(args, {
    entry: ["--import", TELL, MAIN],
    env: { BERTH_ADDRESS: service.address },
  });
  expect(exitCode).toBe(0);
  return stderr;
}

test("a command loads only the modules it needs", async () => {
  const version = await loadedBy("--version");
  expect(version).toMatch(/dist\/main\.js$/m);
  expect(version).not.toMatch(/NativeModule (http2|v8)$/m);
  const list = await loadedBy("ls");
  expect(list).toMatch(/NativeModule http$/m);
  expect(list).toMatch(/\/sandbox_pb/);
  // What only remote services need; `fetch`, which comes with Node's Headers; descriptors of services that are not
  // called.
  expect(list).not.toMatch(/NativeModule (http2|https|tls)$/m);
  expect(list).not.toMatch(/undici|\/(file|process|run|session|workspace)_pb|\/app-/);
});

test("berth exec loads no more than its call needs", async () => {
  const { stdout } = await runProgram(["create"], { env: { BERTH_ADDRESS: service.address } });
  const exec = await loadedBy("exec", stdout.toString().trim(), "--", "true");
  expect(exec).toMatch(/\/process_pb/);
  // What only other commands, errors and compressed messages need.
  expect(exec).not.toMatch(/NativeModule (child_process|dgram|zlib|internal\/blocklist)$/m);
  expect(exec).not.toMatch(/\/(error|sandbox)_pb|\/failure-/);
});

test("an argument that is not UTF-8 is refused, and not changed", async () => {
  const env = { BERTH_ADDRESS: service.address };
  const withLatin1 = ["sh", "-c", 'exec "$@" "$(printf \'caf\\351\')"', "sh"];
  const { exitCode, stderr } = await runProgram(["inspect", "box"], { env, within: withLatin1 });
  expect({ exitCode, stderr }).toEqual({
    exitCode: 2,
    stderr: expect.stringMatching(/^berth: "caf\ufffd" is not UTF-8, .+\n$/),
  });
  // The character itself is UTF-8.
  const found = await runProgram(["inspect", "caf\ufffd"], { env });
  expect(found.stderr).toContain("there is nothing with the id caf\ufffd");
});

test("a directory as stdin is refused, and not read as an empty file", async () => {
  const env = { BERTH_ADDRESS: service.address };
  const { stdout } = await runProgram(["create"], { env });
  const sandbox = stdout.toString().trim();
  const file = `${sandbox}:file`;
  await runProgram(["cp", "-", file], { env, stdin: "kept" });
  const within = ["sh", "-c", 'exec "$@" </', "sh"];
  for (const args of [
    ["cp", "-", file],
    ["exec", sandbox, "--", "cat"],
  ]) {
    const end = await runProgram(args, { env, within });
    expect(end).toMatchObject({ exitCode: 2, stderr: "berth: stdin is a directory: redirect a file\n" });
  }
  expect((await runProgram(["cp", file, "-"], { env })).stdout.toString()).toBe("kept");
});

import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";

/** Tests that the engine's contract does not cover: lanes, files, terminals and limits of commands, in gVisor. */
describe("a service whose sandboxes run under gVisor", () => {
  const service = useApp({ engine: "docker", allowRuntimes: { runsc: "USER_KERNEL" } });
  let id = "";
  beforeAll(async () => {
    const sandbox = await service.client.createSandbox({ runtime: "runsc" });
    id = sandbox.sandbox_id;
    expect(sandbox).toMatchObject({ isolation: "ISOLATION_LEVEL_USER_KERNEL", spec: { runtime: "runsc" } });
  });

  test("commands run in its own kernel, one after another and many at once", async () => {
    expect(await service.client.output(id, "cat /proc/version")).toContain("gvisor");
    for (let i = 0; i < 20; i++) expect(await service.client.output(id, `echo ${i}`)).toBe(`${i}\n`);
    const many = Array.from({ length: 8 }, (_, i) => service.client.output(id, `sleep 0.2; echo ${i}`));
    expect(await Promise.all(many)).toEqual(Array.from({ length: 8 }, (_, i) => `${i}\n`));
  });

  test("output arrives byte for byte, with separate streams and the exit status", async () => {
    const line = "head -c 3000000 /dev/zero | tr '\\0' x; echo err >&2; exit 7";
    const {
      stdout,
      stderr,
      exit_status: exit,
    } = await service.client.run(id, line, {
      max_output_bytes: 4_000_000,
    });
    expect([stderr.toString(), exit.exit_code]).toEqual(["err\n", 7]);
    expect(stdout.equals(Buffer.alloc(3_000_000, "x"))).toBe(true);
  });

  test("a command that exceeds its timeout ends with its children, and the sandbox continues", async () => {
    const { exit_status: exit } = await service.client.run(id, "trap '' TERM; sleep 1000 & sleep 1000", {
      timeout: { seconds: 1 },
    });
    expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
    expect(await service.client.output(id, "echo on")).toBe("on\n");
    const left =
      "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null | grep -c '^sleep 1000' || true";
    expect(await service.client.output(id, left)).toBe("0\n");
  });

  test("files are written and read", async () => {
    const data = Buffer.from(Array.from({ length: 100_000 }, (_, i) => i % 256));
    await service.client.call("FileService/WriteFile", { sandbox_id: id, path: "/workspace/f", data });
    const answer = await service.client.call("FileService/ReadFile", {
      sandbox_id: id,
      path: "/workspace/f",
    });
    expect(Buffer.compare(answer.data, data)).toBe(0);
  });

  test("a terminal has the requested size", async () => {
    // Docker sets the size when the command is already running.
    const line = 'until [ "$(stty size)" = "33 91" ]; do sleep 0.05; done; [ -t 0 ] && [ -t 1 ] && echo yes';
    const execution = service.client.exec(id, line, { terminal: { columns: 91, rows: 33 } });
    await execution.result;
    expect(execution.output.stdout.toString()).toBe("yes\r\n");
  });
});

import { describe, expect, test } from "vitest";
import { eventually } from "../../../support/eventually.ts";
import { useExecBench } from "./support.ts";

const bench = useExecBench();
const { app, exec, running } = bench;

describe("stdin", () => {
  const write = (process_id: string, offset: number, data: string | Buffer, close = false) =>
    app.client.call("ProcessService/WriteStdin", { process_id, offset, data: Buffer.from(data), close });

  test("is empty if none is given", async () => {
    expect((await exec(["cat"])).exit.exit_code).toBe(0);
    expect((await exec("read -r x || echo none; cat")).stdout.toString()).toBe("none\n");
  });

  test("accepts each byte once, however often it is sent", async () => {
    const execution = app.client.exec(bench.id, ["cat"], { keep_stdin_open: true, stdin: Buffer.from("01") });
    const processId = await execution.processId;
    expect((await write(processId, 2, "234")).offset).toBe(5);
    expect((await write(processId, 2, "234")).offset).toBe(5);
    // Continues after the existing data.
    expect((await write(processId, 0, "0123456")).offset).toBe(7);
    expect((await write(processId, 7, "")).offset).toBe(7);
    expect((await write(processId, 5, "56789", true)).offset).toBe(10);
    // A retry of the write that closed stdin gets the same answer.
    const { stdout, exit } = await execution.result;
    expect(stdout.toString()).toBe("0123456789");
    expect(exit.exit_code).toBe(0);
  });

  test("waits for a command that does not read, and arrives whole once it does", async () => {
    const data = Buffer.alloc(3_000_000, "abcdefghij\n");
    const execution = app.client.exec(bench.id, "sleep 1; cat", { keep_stdin_open: true });
    expect((await write(await execution.processId, 0, data, true)).offset).toBe(data.length);
    expect((await execution.result).stdout.equals(data)).toBe(true);
  });

  test("answers a prompt, whatever its last character", async () => {
    const lines = [..."0123456789abcdef"].map((digit) => `printf 'name ${digit}'; read -r x; echo " $x"`);
    const execution = app.client.exec(bench.id, lines.join("\n"), { keep_stdin_open: true });
    const processId = await execution.processId;
    let offset = 0;
    for (const digit of "0123456789abcdef") {
      await execution.until(`name ${digit}`);
      const answer = `is ${digit}\n`;
      await write(processId, offset, answer);
      offset += answer.length;
    }
    expect((await execution.result).stdout.toString()).toMatch(/^name 0 is 0\nname 1 is 1\n/);
  });

  test("ends when it is closed, also without a byte", async () => {
    const execution = app.client.exec(bench.id, "cat; echo end", { keep_stdin_open: true });
    await write(await execution.processId, 0, "", true);
    expect((await execution.result).stdout.toString()).toBe("end\n");
  });
});

describe("a terminal", () => {
  const terminal = { columns: 100, rows: 30 };

  test("is one: of its size, with TERM set, and stderr joined to stdout", async () => {
    const { stdout, stderr } = await exec(
      "test -t 0 && test -t 1 && test -t 2 && stty size; echo $TERM; echo err >&2",
      {
        terminal,
      },
    );
    expect(stdout.toString()).toBe("30 100\r\nxterm-256color\r\nerr\r\n");
    expect(stderr.length).toBe(0);
  });

  test("is 80 by 24 by default, and has TERM from the request", async () => {
    const { stdout } = await exec("stty size; echo $TERM", { terminal: {}, env: { TERM: "vt100" } });
    expect(stdout.toString()).toBe("24 80\r\nvt100\r\n");
  });

  test("echoes, reports a new size, and sends Ctrl-C as SIGINT", async () => {
    const line = `trap 'echo interrupted; exit 3' INT; echo ready
      while :; do read -r x; case $x in size) stty size;; *) echo got $x;; esac; done`;
    const execution = app.client.exec(bench.id, line, { terminal });
    const process_id = await execution.processId;
    const type = (offset: number, text: string) =>
      app.client.call("ProcessService/WriteStdin", { process_id, offset, data: Buffer.from(text) });
    await execution.until("ready");
    await type(0, "hello\n");
    await execution.until("hello\r\ngot hello\r\n");
    await app.client.call("ProcessService/ResizeTerminal", { process_id, columns: 61, rows: 17 });
    await type(6, "size\n");
    await execution.until("17 61\r\n");
    await type(11, "\x03");
    const { stdout, exit } = await execution.result;
    expect(stdout.toString()).toMatch(/interrupted\r\n$/);
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 3 });
    const { process } = await app.client.call("ProcessService/GetProcess", { process_id });
    expect(process.has_terminal).toBe(true);
  });

  test("soon waits for a slow reader: output that Ctrl-C cuts off was not written long ago", async () => {
    const execution = app.client.exec(bench.id, "yes", { terminal });
    const process_id = await execution.processId;
    execution.call.pause();
    let written = 0;
    let since = performance.now();
    await eventually(async () => {
      const { process } = await app.client.call("ProcessService/GetProcess", { process_id });
      if (process.stdout_bytes > written) since = performance.now();
      written = process.stdout_bytes;
      return written > 0 && performance.now() - since > 1_000;
    });
    // Its limit, plus what is in transit. Without its own limit it would be 64 MiB.
    expect(written).toBeLessThan(2 * 1024 * 1024);
    execution.cancel();
  });

  test("ends with its caller, like any command", async () => {
    const execution = app.client.exec(bench.id, "echo on; sleep 688; true", { terminal });
    await execution.until("on");
    execution.cancel();
    await eventually(async () => (await running("sleep 688")).length === 0);
  });
});

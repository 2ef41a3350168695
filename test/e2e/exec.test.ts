import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../support/app.ts";
import type { Request } from "../support/client.ts";
import { containerOf, processesIn } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { inSeconds, seconds } from "../support/wire.ts";

const app = useApp();
let id = "";

beforeAll(async () => {
  ({ sandbox_id: id } = await app.client.createSandbox());
});

const exec = (command: string | readonly string[], more: Request = {}) =>
  app.client.exec(id, command, more).result;

async function running(marker: string): Promise<string[]> {
  const all = await processesIn(await containerOf(app.instance, id));
  return all.filter((line) => line.includes(marker));
}

describe("how a command ends", () => {
  test("its exit code and streams come apart", async () => {
    const { stdout, stderr, exit } = await exec("echo out; echo err >&2; exit 3");
    expect([stdout.toString(), stderr.toString()]).toEqual(["out\n", "err\n"]);
    expect(exit).toMatchObject({
      cause: "EXIT_CAUSE_EXITED",
      exit_code: 3,
      signal: 0,
      stdout_bytes: 4,
      stderr_bytes: 4,
      message: "",
    });
    expect(inSeconds(exit.duration)).toBeGreaterThan(0);
  });

  test("a program that does not exist ends with 127, one that cannot run with 126, both at once", async () => {
    for (const [command, code] of [
      [["no-such-program"], 127],
      [["/no/such/program"], 127],
      ["no-such-program", 127],
      [["/etc/passwd"], 126],
      [["/tmp"], 126],
      ["/etc/passwd", 126],
    ] as const) {
      const startedAt = performance.now();
      const { exit, stderr } = await exec(command);
      expect([command, exit.cause, exit.exit_code]).toEqual([command, "EXIT_CAUSE_EXITED", code]);
      expect(stderr.toString()).not.toBe("");
      expect(performance.now() - startedAt).toBeLessThan(3_000);
    }
  });

  test("a signal that it got is told", async () => {
    for (const signal of [1, 2, 9, 15]) {
      const execution = app.client.exec(id, ["sleep", "600"]);
      await app.client.call("ProcessService/SignalProcess", {
        process_id: await execution.processId,
        signal,
      });
      const { exit } = await execution.result;
      expect(exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal, exit_code: 128 + signal });
    }
  });

  test("a signal that is sent as soon as the command is known is not lost", async () => {
    for (let i = 0; i < 12; i++) {
      const execution = app.client.exec(id, ["sleep", "600"], i % 2 === 0 ? {} : { user: "1234" });
      await app.client.call("ProcessService/SignalProcess", {
        process_id: await execution.processId,
        signal: 1,
      });
      expect((await execution.result).exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal: 1 });
    }
  });

  test("a signal goes to the whole process group, and a command may handle it", async () => {
    const line = "trap 'echo caught; exit 5' USR1; sleep 611 & echo ready; wait";
    const execution = app.client.exec(id, line);
    await execution.until("ready");
    await eventually(async () => (await running("sleep 611")).includes("sleep 611"));
    const request = { process_id: await execution.processId, signal: 10 };
    await app.client.call("ProcessService/SignalProcess", request);
    const { stdout, exit } = await execution.result;
    expect(stdout.toString()).toBe("ready\ncaught\n");
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 5 });
    await eventually(async () => (await running("sleep 611")).length === 0);
  });

  test("more output than allowed ends it, with the whole tree and exactly that much output", async () => {
    const line = "sleep 622 & yes 0123456789 | tee /dev/stderr";
    const { stdout, stderr, exit } = await exec(line, { output_limit_bytes: 100_000 });
    expect(exit.cause).toBe("EXIT_CAUSE_OUTPUT_LIMIT");
    expect(stdout.length + stderr.length).toBe(100_000);
    expect(exit.stdout_bytes + exit.stderr_bytes).toBe(100_000);
    expect(await running("sleep 622")).toEqual([]);
    expect(await running("yes 0123456789")).toEqual([]);
    const exact = await exec("head -c 100000 /dev/zero", { output_limit_bytes: 100_000 });
    expect(exact.exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0, stdout_bytes: 100_000 });
  });

  test("more output than allowed in the first bytes already ends it all the same", async () => {
    for (let i = 0; i < 8; i++) {
      const more = { output_limit_bytes: 3, ...(i % 4 === 3 && { user: "1234" }) };
      const { stdout, exit } = await exec(["yes", "first-bytes"], more);
      expect(stdout.toString()).toBe("fir");
      expect(exit).toMatchObject({ cause: "EXIT_CAUSE_OUTPUT_LIMIT", message: "" });
    }
    expect(await running("yes first-bytes")).toEqual([]);
  });

  test("commands run side by side, each as its user and in its directory", async () => {
    const together = await Promise.all([
      exec("id -u; pwd", { user: "1234", working_dir: "/tmp" }),
      exec("id -u; id -g; pwd", { user: "0:0", working_dir: "/" }),
      exec("mkdir -p below && pwd"),
      exec(["pwd"], { working_dir: "/usr/./share/" }),
    ]);
    expect(together.map(({ stdout }) => stdout.toString())).toEqual([
      "1234\n/tmp\n",
      "0\n0\n/\n",
      "/workspace\n",
      "/usr/share\n",
    ]);
    expect((await exec("pwd", { working_dir: "below" })).stdout.toString()).toBe("/workspace/below\n");
  });
});

describe("the environment of a command", () => {
  test.each([
    ["in a lane", {}],
    ["with stdin", { stdin: Buffer.from("x") }],
    ["as another user", { user: "1234" }],
    ["at a terminal", { terminal: {} }],
  ])("keeps variables whose names a shell script might use itself (%s)", async (_how, more) => {
    const names = "n s x t i k p q f g c d o l m r B E G H I L N T W go first REPLY".split(" ");
    const env = Object.fromEntries(names.map((name) => [name, `mine ${name}`]));
    const { stdout } = await exec(["env"], { env, ...more });
    const lines = stdout.toString().replaceAll("\r", "").split("\n");
    for (const [name, value] of Object.entries(env)) expect(lines).toContain(`${name}=${value}`);
    expect(stdout.toString()).not.toMatch(/[0-9a-f]{32}/);
  });
});

describe("RunCommand", () => {
  test("returns both streams whole where they fit", async () => {
    const { stdout, stderr, ...rest } = await app.client.run(
      id,
      "printf 'a\\0b\\n\\n'; printf '\\377' >&2; exit 2",
    );
    expect(stdout).toEqual(Buffer.from("a\0b\n\n"));
    expect(stderr).toEqual(Buffer.from([0xff]));
    expect(rest).toMatchObject({
      exit_status: { cause: "EXIT_CAUSE_EXITED", exit_code: 2 },
      truncated: false,
      stdout_gap: null,
      stderr_gap: null,
      process_id: expect.stringMatching(/^prc_[a-z2-7]{20}$/),
    });
  });

  test("keeps head and tail of a longer stream, and tells the gap", async () => {
    const line = "seq 1 200000; seq 1 3 >&2";
    const whole = Buffer.from(Array.from({ length: 200_000 }, (_, i) => `${i + 1}\n`).join(""));
    const {
      stdout,
      stderr,
      exit_status: exit,
      truncated,
      stdout_gap: gap,
      stderr_gap,
    } = await app.client.run(id, line, { max_output_bytes: 10_001 });
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0, stdout_bytes: whole.length });
    expect(truncated).toBe(true);
    expect(stdout.length).toBe(10_001);
    const { from_offset: from, to_offset: to } = gap ?? { from_offset: 0, to_offset: 0 };
    expect(stdout.subarray(0, from).equals(whole.subarray(0, from))).toBe(true);
    expect(stdout.subarray(from).equals(whole.subarray(to))).toBe(true);
    expect(Math.abs(from - 5_000)).toBeLessThanOrEqual(1);
    expect(stderr.toString()).toBe("1\n2\n3\n");
    expect(stderr_gap).toBeNull();
  });

  test("keeps a mebibyte of each stream where nothing else is said", async () => {
    const { stdout, truncated } = await app.client.run(id, "head -c 5000000 /dev/zero");
    expect(stdout.length).toBe(1024 * 1024);
    expect(truncated).toBe(true);
  });

  test("ends its command when its caller goes away", async () => {
    const abort = new AbortController();
    const request = { sandbox_id: id, shell: "sleep 633; true" };
    const call = app.client.call("ProcessService/RunCommand", request, { signal: abort.signal });
    call.catch(() => {});
    await eventually(async () => (await running("sleep 633")).length > 0);
    abort.abort();
    await eventually(async () => (await running("sleep 633")).length === 0);
  });

  test("ends its command when its own deadline passes", async () => {
    const request = { sandbox_id: id, shell: "sleep 644; true" };
    const call = app.client.call("ProcessService/RunCommand", request, { deadline: Date.now() + 500 });
    await expect(call).rejects.toMatchObject({ code: 4 });
    await eventually(async () => (await running("sleep 644")).length === 0);
  });
});

describe("a caller that goes away", () => {
  const left = async (processId: string) =>
    eventually(async () => {
      const { process } = await app.client.call("ProcessService/GetProcess", { process_id: processId });
      return process.exit_status ?? undefined;
    });

  test("takes its command along, the whole tree", async () => {
    const line = "trap '' TERM; sleep 655 & setsid sleep 655 & echo on; wait; wait";
    const execution = app.client.exec(id, line);
    await execution.until("on");
    await eventually(
      async () => (await running("sleep 655")).filter((one) => one === "sleep 655").length === 2,
    );
    execution.cancel();
    expect((await left(await execution.processId)).cause).toBe("EXIT_CAUSE_CANCELED");
    expect(await running("sleep 655")).toEqual([]);
  });

  test("may come back within the grace, and the command goes on as if nothing had been", async () => {
    const execution = app.client.exec(
      id,
      "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done",
      {
        disconnect_grace: seconds(20),
      },
    );
    await execution.until("3\n");
    const processId = await execution.processId;
    const from = execution.offset("stdout");
    execution.cancel();
    await new Promise((resolve) => setTimeout(resolve, 300));
    const { stdout, gaps, exit } = await app.client.attach(processId, { stdout: from }).result;
    expect(gaps).toEqual([]);
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
    const all = Buffer.concat([execution.output.stdout, stdout]).toString();
    expect(all).toBe(Array.from({ length: 40 }, (_, i) => `${i}\n`).join(""));
  });

  test("and does not come back within the grace loses the command", async () => {
    const execution = app.client.exec(id, "echo on; exec sleep 666", { disconnect_grace: seconds(0.5) });
    await execution.until("on");
    execution.cancel();
    const startedAt = performance.now();
    expect(await running("sleep 666")).toContain("sleep 666");
    expect((await left(await execution.processId)).cause).toBe("EXIT_CAUSE_CANCELED");
    expect(performance.now() - startedAt).toBeGreaterThan(300);
    expect(await running("sleep 666")).toEqual([]);
  });

  test("and comes back only to go again loses the command after another grace", async () => {
    const execution = app.client.exec(id, "echo on; exec sleep 677", { disconnect_grace: seconds(0.5) });
    await execution.until("on");
    const processId = await execution.processId;
    execution.cancel();
    const again = app.client.attach(processId);
    await again.until("on");
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(await running("sleep 677")).toContain("sleep 677");
    again.cancel();
    expect((await left(processId)).cause).toBe("EXIT_CAUSE_CANCELED");
  });

  test("leaves a detached command running, to be read from any offset, during and after", async () => {
    const execution = app.client.exec(id, "echo 12345; echo err >&2; read -r x; echo $x; exit 6", {
      on_disconnect: "ON_DISCONNECT_DETACH",
      keep_stdin_open: true,
    });
    await execution.until("12345\n");
    await eventually(() => execution.offset("stderr") === 4);
    const process_id = await execution.processId;
    execution.cancel();

    const readers = [{}, { stdout: 2 }, { stdout: 6, stderr: 4 }].map((from) =>
      app.client.attach(process_id, from),
    );
    await app.client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("67\n") });
    const expected = [
      ["12345\n67\n", "err\n"],
      ["345\n67\n", "err\n"],
      ["67\n", ""],
    ];
    const during = await Promise.all(readers.map(({ result }) => result));
    expect(during.map(({ stdout, stderr }) => [stdout.toString(), stderr.toString()])).toEqual(expected);
    for (const { exit } of during) expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 6 });

    const after = await app.client.attach(process_id, { stdout: 9, stderr: 4 }).result;
    expect([after.stdout.length, after.stderr.length]).toEqual([0, 0]);
    expect(after.exit).toEqual(during[0]?.exit);
    const { process } = await app.client.call("ProcessService/GetProcess", { process_id });
    expect(process).toMatchObject({ stdout_bytes: 9, stderr_bytes: 4, exit_status: during[0]?.exit });
  });
});

describe("stdin", () => {
  const write = (process_id: string, offset: number, data: string | Buffer, close = false) =>
    app.client.call("ProcessService/WriteStdin", { process_id, offset, data: Buffer.from(data), close });

  test("is empty where none is given", async () => {
    expect((await exec(["cat"])).exit.exit_code).toBe(0);
    expect((await exec("read -r x || echo none; cat")).stdout.toString()).toBe("none\n");
  });

  test("takes each byte once, however often it is sent", async () => {
    const execution = app.client.exec(id, ["cat"], { keep_stdin_open: true, stdin: Buffer.from("01") });
    const processId = await execution.processId;
    expect((await write(processId, 2, "234")).offset).toBe(5);
    expect((await write(processId, 2, "234")).offset).toBe(5);
    // Begins with what is there and goes on.
    expect((await write(processId, 0, "0123456")).offset).toBe(7);
    expect((await write(processId, 7, "")).offset).toBe(7);
    expect((await write(processId, 5, "56789", true)).offset).toBe(10);
    // A retry of the write that closed is answered as the first was.
    const { stdout, exit } = await execution.result;
    expect(stdout.toString()).toBe("0123456789");
    expect(exit.exit_code).toBe(0);
  });

  test("waits for a command that does not read, and arrives whole once it does", async () => {
    const data = Buffer.alloc(3_000_000, "abcdefghij\n");
    const execution = app.client.exec(id, "sleep 1; cat", { keep_stdin_open: true });
    expect((await write(await execution.processId, 0, data, true)).offset).toBe(data.length);
    expect((await execution.result).stdout.equals(data)).toBe(true);
  });

  test("ends where it is closed, also without a byte", async () => {
    const execution = app.client.exec(id, "cat; echo end", { keep_stdin_open: true });
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

  test("takes 80 by 24 where nothing is said, and TERM from the request", async () => {
    const { stdout } = await exec("stty size; echo $TERM", { terminal: {}, env: { TERM: "vt100" } });
    expect(stdout.toString()).toBe("24 80\r\nvt100\r\n");
  });

  test("echoes, tells of a new size, and sends Ctrl-C as SIGINT", async () => {
    const line = `trap 'echo interrupted; exit 3' INT; echo ready
      while :; do read -r x; case $x in size) stty size;; *) echo got $x;; esac; done`;
    const execution = app.client.exec(id, line, { terminal });
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

  test("waits for its reader soon: what Ctrl-C ends was not written long ago", async () => {
    const execution = app.client.exec(id, "yes", { terminal });
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
    // Its bound, and what is between here and there. Without one of its own it would be 64 MiB.
    expect(written).toBeLessThan(2 * 1024 * 1024);
    execution.cancel();
  });

  test("goes with its caller, as any command", async () => {
    const execution = app.client.exec(id, "echo on; sleep 688; true", { terminal });
    await execution.until("on");
    execution.cancel();
    await eventually(async () => (await running("sleep 688")).length === 0);
  });
});

describe("output", () => {
  test("is bytes: what is no text and what imitates markers comes as it is", async () => {
    const all = Buffer.from(Array.from({ length: 256 * 40 }, (_, i) => (i * 7 + (i >> 8)) % 256));
    const { stdout } = await exec("cat; cat >&2", { stdin: all });
    expect(stdout.equals(all)).toBe(true);
    const odd = "$ \n# \r\n\x1b[31mred\x1b[0m\n\n\nREADY 1;E0;D;\n> ";
    expect((await exec(["printf", "%s", odd])).stdout.toString()).toBe(odd);
  });

  test("ends with the command, not with a child that keeps it open", async () => {
    const startedAt = performance.now();
    const { stdout, exit } = await exec("sleep 60 & echo now");
    expect([stdout.toString(), exit.exit_code]).toEqual(["now\n", 0]);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    await exec("pkill -f 'sleep 60'");
  });

  test("comes while the command runs", async () => {
    const execution = app.client.exec(id, "echo first; sleep 5; echo second");
    const startedAt = performance.now();
    await execution.until("first");
    expect(performance.now() - startedAt).toBeLessThan(3_000);
    execution.cancel();
  });

  test("of a command that closes it, and of a broken one, is an end as any", async () => {
    expect((await exec("exec >&- 2>&-; exit 4")).exit.exit_code).toBe(4);
    expect((await exec("set -e; false; echo not reached")).exit.exit_code).toBe(1);
    const quote = await exec("echo 'oops");
    expect(quote.exit.exit_code).toBe(2);
    expect(quote.stderr.toString()).toMatch(/[Uu]nterminated/);
    expect((await exec("echo fine")).stdout.toString()).toBe("fine\n");
  });
});

import { describe, expect, test } from "vitest";
import type { Request } from "../../../support/client.ts";
import { eventually } from "../../../support/eventually.ts";
import { inSeconds } from "../../../support/wire.ts";
import { useExecBench } from "./support.ts";

const bench = useExecBench();
const { app, exec, running } = bench;

describe("how a command ends", () => {
  test("its exit code and streams arrive separately", async () => {
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

  test("a missing program ends with 127, one that cannot run with 126", async () => {
    for (const [command, code] of [
      [["no-such-program"], 127],
      [["/no/such/program"], 127],
      ["no-such-program", 127],
      [["/etc/passwd"], 126],
      [["/tmp"], 126],
      ["/etc/passwd", 126],
    ] as const) {
      const { exit, stderr } = await exec(command);
      expect([command, exit.cause, exit.exit_code]).toEqual([command, "EXIT_CAUSE_EXITED", code]);
      expect(stderr.toString()).not.toBe("");
    }
  });

  test("a signal it received is reported", async () => {
    for (const signal of [1, 2, 9, 15]) {
      const execution = app.client.exec(bench.id, ["sleep", "600"]);
      await app.client.call("ProcessService/SignalProcess", {
        process_id: await execution.processId,
        signal,
      });
      const { exit } = await execution.result;
      expect(exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal, exit_code: 128 + signal });
    }
  });

  test("a signal sent as soon as the command is known is not lost", async () => {
    for (let i = 0; i < 12; i++) {
      const execution = app.client.exec(bench.id, ["sleep", "600"], i % 2 === 0 ? {} : { user: "1234" });
      await app.client.call("ProcessService/SignalProcess", {
        process_id: await execution.processId,
        signal: 1,
      });
      expect((await execution.result).exit).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal: 1 });
    }
  });

  test("a signal goes to the whole process group, and a command may handle it", async () => {
    const line = "trap 'echo caught; exit 5' USR1; sleep 611 & echo ready; wait";
    const execution = app.client.exec(bench.id, line);
    await execution.until("ready");
    await eventually(async () => (await running("sleep 611")).includes("sleep 611"));
    const request = { process_id: await execution.processId, signal: 10 };
    await app.client.call("ProcessService/SignalProcess", request);
    const { stdout, exit } = await execution.result;
    expect(stdout.toString()).toBe("ready\ncaught\n");
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 5 });
    await eventually(async () => (await running("sleep 611")).length === 0);
  });

  test("a command that handles a signal continues, whichever signal and shell", async () => {
    const caught = async (signal: number, more: Request): Promise<void> => {
      const line = `trap 'echo caught; exit 5' ${signal}; echo ready; while :; do sleep 0.1; done`;
      const execution = app.client.exec(bench.id, line, more);
      await execution.until("ready");
      const request = { process_id: await execution.processId, signal };
      await app.client.call("ProcessService/SignalProcess", request);
      const { stdout, exit } = await execution.result;
      expect([signal, more, stdout.toString(), exit.exit_code]).toEqual([signal, more, "ready\ncaught\n", 5]);
    };
    // SIGABRT, SIGXCPU, SIGIO and the first and last real-time signal.
    for (const signal of [6, 24, 29, 34, 64])
      await Promise.all(
        [{}, { stdin: Buffer.from("x") }, { user: "1234" }].map((more) => caught(signal, more)),
      );
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

  test("more output than allowed in the first bytes already ends it just the same", async () => {
    for (let i = 0; i < 8; i++) {
      const more = { output_limit_bytes: 3, ...(i % 4 === 3 && { user: "1234" }) };
      const { stdout, exit } = await exec(["yes", "first-bytes"], more);
      expect(stdout.toString()).toBe("fir");
      expect(exit).toMatchObject({ cause: "EXIT_CAUSE_OUTPUT_LIMIT", message: "" });
    }
    expect(await running("yes first-bytes")).toEqual([]);
  });

  test("commands run at the same time, each as its user and in its directory", async () => {
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

describe("output", () => {
  test("is bytes: binary output and imitated markers arrive unchanged", async () => {
    const all = Buffer.from(Array.from({ length: 256 * 40 }, (_, i) => (i * 7 + (i >> 8)) % 256));
    const { stdout } = await exec("cat; cat >&2", { stdin: all });
    expect(stdout.equals(all)).toBe(true);
    const odd = "$ \n# \r\n\x1b[31mred\x1b[0m\n\n\nREADY 1;E0;D;\n> ";
    expect((await exec(["printf", "%s", odd])).stdout.toString()).toBe(odd);
  });

  test("ends with the command, not with a child that keeps it open", async () => {
    const { stdout, exit } = await exec("sleep 3600 & echo now");
    expect([stdout.toString(), exit.exit_code]).toEqual(["now\n", 0]);
    await exec("pkill -f 'sleep 3600'");
  });

  test("arrives while the command runs", async () => {
    const execution = app.client.exec(bench.id, "echo first; sleep 3600; echo second");
    await execution.until("first");
    execution.cancel();
  });

  test("of a command that closes it, and of a broken one, ends like any other", async () => {
    expect((await exec("exec >&- 2>&-; exit 4")).exit.exit_code).toBe(4);
    expect((await exec("set -e; false; echo not reached")).exit.exit_code).toBe(1);
    const quote = await exec("echo 'oops");
    expect(quote.exit.exit_code).toBe(2);
    expect(quote.stderr.toString()).toMatch(/[Uu]nterminated/);
    expect((await exec("echo fine")).stdout.toString()).toBe("fine\n");
  });
});

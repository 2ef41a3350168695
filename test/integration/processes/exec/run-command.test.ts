import { describe, expect, test } from "vitest";
import { eventually } from "../../../support/eventually.ts";
import { useExecBench } from "./support.ts";

const bench = useExecBench();
const { app, exec, running } = bench;

describe("RunCommand", () => {
  test("returns both streams whole if they fit", async () => {
    const { stdout, stderr, ...rest } = await app.client.run(
      bench.id,
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

  test("keeps head and tail of a longer stream, and reports the gap", async () => {
    const line = "seq 1 200000; seq 1 3 >&2";
    const whole = Buffer.from(Array.from({ length: 200_000 }, (_, i) => `${i + 1}\n`).join(""));
    const {
      stdout,
      stderr,
      exit_status: exit,
      truncated,
      stdout_gap: gap,
      stderr_gap,
    } = await app.client.run(bench.id, line, { max_output_bytes: 10_001 });
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

  test("keeps a mebibyte of each stream by default", async () => {
    const { stdout, truncated } = await app.client.run(bench.id, "head -c 5000000 /dev/zero");
    expect(stdout.length).toBe(1024 * 1024);
    expect(truncated).toBe(true);
  });

  test("ends its command when its caller leaves", async () => {
    const abort = new AbortController();
    const request = { sandbox_id: bench.id, shell: "sleep 633; true" };
    const call = app.client.call("ProcessService/RunCommand", request, { signal: abort.signal });
    call.catch(() => {});
    await eventually(async () => (await running("sleep 633")).length > 0);
    abort.abort();
    await eventually(async () => (await running("sleep 633")).length === 0);
  });

  test("ends its command when its own deadline passes", async () => {
    const request = { sandbox_id: bench.id, shell: "sleep 644; true" };
    const call = app.client.call("ProcessService/RunCommand", request, { deadline: Date.now() + 500 });
    await expect(call).rejects.toMatchObject({ code: 4 });
    await eventually(async () => (await running("sleep 644")).length === 0);
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

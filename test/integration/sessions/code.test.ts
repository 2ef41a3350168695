import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import { Worker } from "../../support/worker.ts";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);

  test("code runs in a fresh process, and only files stay", async () => {
    const worker = new Worker(app.client, "coder");
    await worker.create("code");
    const execute = (language: string, code: string, more = {}) =>
      worker.execute("code:execute", { language, code, ...more });
    expect(
      await execute("python", "import sys\nx = 1\nprint(x)\nprint('bad', file=sys.stderr)\nsys.exit(3)"),
    ).toMatchObject({
      code: 0,
      data: { stdout: "1\n", stderr: "bad\n", exit_code: 3, timed_out: false, truncated: false },
    });
    expect((await execute("python", "print(x)")).data).toMatchObject({ exit_code: 1 });
    expect(
      (await execute("bash", "cd /tmp; cat; echo $((1 + 1)) > /workspace/f; read x; echo $?")).data,
    ).toMatchObject({
      stdout: "1\n",
      stderr: "",
      exit_code: 0,
    });
    expect((await execute("bash", "cat f; pwd")).data).toMatchObject({ stdout: "2\n/workspace\n" });
    const { code, data } = await execute("javascript", "console.log(1)");
    // The image has no node; with bubblewrap, the machine may have one.
    if (data.exit_code === 127) expect(code).toBe(4001);
    else expect({ code, ...data }).toMatchObject({ code: 0, stdout: "1\n" });
    const late = await withTimeEnough(
      1,
      (timeout) => execute("bash", "echo started; sleep 1000", { timeout }),
      ({ data }) => data.stdout !== "",
    );
    expect(late).toMatchObject({
      code: 5006,
      data: { stdout: "started\n", timed_out: true },
    });
    await expect(execute("cobol", "x")).rejects.toThrow(/params\.language: .*"python"/);
  });
});

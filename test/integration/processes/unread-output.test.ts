import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";

/**
 * Writes until nobody has read the pipe for a second, in which there is room for a shell's report of the end. Then says
 * in a file how much it has written, and ends.
 */
const WRITER = `
import fcntl, os, struct, sys, termios, time
sys.stdin.read()
written, quiet = 0, 0
while quiet < 20:
    waiting, = struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))
    if waiting < 16384:
        written += os.write(1, bytes(16384))
        quiet = 0
    else:
        quiet += 1
        time.sleep(0.05)
open("/tmp/new", "w").write(str(written))
os.rename("/tmp/new", "/tmp/written")
`;

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp({ ...settings, transcriptWindowBytes: 256 * 1024 });

  test("a command that ends while its reader does not read loses no output", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox();
    const execution = client.exec(id, ["python3", "-c", WRITER], { stdin: Buffer.from("x") });
    await execution.processId;
    execution.call.pause();
    const written = await eventually(() => client.output(id, "cat /tmp/written").catch(() => undefined));
    // Longer than Berth waits for output of a command that has ended.
    await sleep(3_000);
    execution.call.resume();
    const { stdout, gaps, exit } = await execution.result;
    expect(stdout.length).toBe(Number(written));
    expect(gaps).toEqual([]);
    expect(exit.exit_code).toBe(0);
  });
});

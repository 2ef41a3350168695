import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test, vi } from "vitest";
import { DataDisk } from "../../../src/data-disk.ts";
import { Client, failureOf } from "../../support/client.ts";
import { healthOf } from "../../support/health.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { runProgram, ServeProcess } from "../../support/program.ts";
import { SmallDisk } from "../../support/small-disk.ts";

const run = promisify(execFile);

test("a disk that fails under the data directory is reported by /readyz, health, the log and the doctor", async () => {
  const disk = await SmallDisk.make(32);
  const dataDir = `${disk.path}/data`;
  const within = disk.enter;
  try {
    const serve = await ServeProcess.start(["--engine", "bubblewrap"], {}, { within, dataDir });
    const client = new Client(serve.address);
    const ready = async () => {
      const answer = await fetch(`http://${serve.address}/readyz`);
      return `${answer.status} ${await answer.text()}`;
    };
    try {
      expect(await ready()).toMatch(/^200 ok/);
      disk.fail();
      expect((await failureOf(client.createSandbox())).reason).toBe("NO_SPACE");
      await expect
        .poll(ready, { timeout: 60_000 })
        .toBe(
          "503 The data directory cannot be written (EROFS), so nothing can be created or changed: check its disk (dmesg).\n",
        );
      expect(await healthOf(serve.address)).toBe("NOT_SERVING");
    } finally {
      client.close();
      await serve.stop();
    }
    const doctor = await runProgram(["doctor", "--json", "--data-dir", dataDir], { within });
    expect(doctor.exitCode).toBe(1);
    expect(JSON.parse(doctor.stdout.toString()).findings).toContainEqual({
      subject: "data directory",
      status: "missing",
      found: `the disk of ${dataDir} refuses every write`,
      fix: expect.stringContaining("dmesg"),
    });
  } finally {
    await disk.remove();
  }
});

test("a data directory that becomes read-only is reported until it can be written again", async () => {
  const disk = await SmallDisk.make(16);
  const log = new MemoryLog();
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  const place = disk.reach("");
  const watched = await DataDisk.watch(place, place, log);
  const changes: (string | undefined)[] = [];
  const stop = watched.onProblemChange(() => changes.push(watched.problem));
  const remount = async (how: string) => {
    const [command = "", ...enter] = disk.enter;
    await run(command, [...enter, "mount", "-o", `remount,${how}`, disk.path]);
  };
  const seen = () => {
    vi.advanceTimersByTime(5_000);
    return watched.problem;
  };
  try {
    expect(seen()).toBeUndefined();
    await remount("ro");
    await expect.poll(seen).toBe("EROFS");
    await remount("rw");
    await expect.poll(seen).toBeUndefined();
    expect(changes).toEqual(["EROFS", undefined]);
    expect(log.errors).toMatchObject([{ fields: { directory: place, problem: "EROFS" } }]);
  } finally {
    stop();
    watched.stop();
    vi.useRealTimers();
    await disk.remove();
  }
});

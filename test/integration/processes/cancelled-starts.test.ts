import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, test } from "vitest";
import { BubblewrapEngine } from "../../../src/engine/bubblewrap/engine.ts";
import type { Engine } from "../../../src/engine/port.ts";
import type { JobRequest } from "../../../src/processes/shell/job.ts";
import { PlainRunner } from "../../../src/processes/shell/plain-job.ts";
import { PrestartedShell } from "../../../src/processes/shell/prestarted-shells.ts";
import type { LeasedSandbox } from "../../../src/sandboxes/lease.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { failure, sh, silent, spec, useEngine } from "../engine/docker/support.ts";

const pipesDir = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
afterAll(() => rmSync(pipesDir, { recursive: true, force: true }));
const bubblewrap = new BubblewrapEngine({ logger: silent, image: TEST_IMAGE });
afterAll(() => bubblewrap.close());

describe.each<[string, Engine]>([
  ["docker with pipes", useEngine({ pipesDir }).engine],
  ["docker", useEngine().engine],
  ["bubblewrap", bubblewrap],
])("on %s", (_, engine) => {
  const leased = (ref: string): LeasedSandbox => ({ ref, user: "", spec: spec() }) as never;

  test("a start whose caller left before it reached the engine is dropped", async () => {
    const { ref } = await engine.create(spec());
    const runner = new PlainRunner(engine);
    const request = (i: number): JobRequest => ({
      argv: ["touch", `/tmp/ran-${i}`],
      ...{ env: {}, workingDir: "/", user: "", stdin: false, terminal: undefined },
    });
    const starts = Array.from({ length: 40 }, async (_, i) => {
      const caller = new AbortController();
      const starting = runner.start(leased(ref), request(i), () => {}, caller.signal);
      caller.abort();
      await failure(starting, "CANCELED");
    });
    await Promise.all(starts);
    // A process that starts now comes after all earlier ones.
    await (await runner.start(leased(ref), request(99), () => {}, new AbortController().signal)).end;
    expect(await sh(engine, ref, "ls /tmp | grep ran-")).toBe("ran-99\n");
    await engine.remove(ref);
  });

  test("a shell that does not report ready is waited for only so long", async () => {
    const { ref } = await engine.create(spec());
    // A silent program instead of the shell.
    const spawn: Engine["spawn"] = (at, { argv: _, ...request }, sink, signal) =>
      engine.spawn(at, { ...request, argv: ["sleep", "600"] }, sink, signal);
    const silentShells = { spawn } as Engine;
    const opening = PrestartedShell.open(silentShells, leased(ref), new AbortController().signal, 1_000);
    // Only against a hang: the silent program ends much later.
    const inTime = Promise.race([opening, sleep(60_000, undefined, { ref: false })]);
    await failure(inTime, "CANCELED");
    await engine.remove(ref);
  });
});

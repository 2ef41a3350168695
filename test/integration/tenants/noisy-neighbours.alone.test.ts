import { performance } from "node:perf_hooks";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client } from "../../support/client.ts";
import { containersOf } from "../../support/docker.ts";
import { ENGINES, type EngineName } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { percentile } from "../../support/measure.ts";
import { ServeProcess } from "../../support/program.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";

/** The limits of the noisy tenant's sandbox: without them none of this may run. */
const RESOURCES = { memory_bytes: 128 << 20, pids_limit: 64, cpu_millis: 1000 };
/** bubblewrap keeps files in memory, so they must be limited. */
const DISK: Partial<Record<EngineName, object>> = { docker: {}, bubblewrap: { disk_bytes: 64 << 20 } };

/** Each continues until its sandbox is deleted, and prints as soon as it has reached its limit. */
const NOISE: Readonly<Record<string, readonly string[]>> = {
  "a fork bomb": [
    "python3",
    "-c",
    `import os
full = False
while True:
    try:
        os.fork()
    except OSError:
        if not full: os.write(1, b"full\\n")
        full = True`,
  ],
  "a memory hog": ["sh", "-c", "while :; do python3 -c 'bytearray(1 << 30)' 2>/dev/null; echo killed; done"],
  // On Docker, files use the daemon's disk, so this one limits itself.
  "a full disk": [
    "sh",
    "-c",
    "while :; do head -c 500000000 /dev/zero >/tmp/full 2>/dev/null; echo full; done",
  ],
  "a flood of output": ["yes"],
  "a spinning CPU": ["sh", "-c", "for i in 1 2 3 4; do while :; do :; done & done; echo spins; wait"],
};
const WITHIN_MS = 250;
const GONE_WITHIN_MS = 10_000;
const EXECS = 500;

describe.each(ENGINES)("on $name", ({ name }) => {
  const file = new TokensFile();
  let service: ServeProcess;
  let [quiet, noisy]: Client[] = [];
  let sandbox = "";

  beforeAll(async () => {
    const [ann, bob] = [await file.add("ann"), await file.add("bob")];
    service = await ServeProcess.start(["--tokens", file.path, "--engine", name]);
    [quiet, noisy] = [ann, bob].map((token) => clientWith(service.address, token));
    ({ sandbox_id: sandbox } = await of(quiet).createSandbox());
  });
  afterAll(async () => {
    for (const one of [quiet, noisy]) one?.close();
    await service?.stop();
  });

  const of = (client: Client | undefined): Client => {
    if (client === undefined) throw new Error("not started");
    return client;
  };

  test("five sandboxes of one tenant at their limits do not affect another tenant's commands", async () => {
    const resources = { ...RESOURCES, ...DISK[name] };
    const greedy = await Promise.all(
      Object.entries(NOISE).map(async ([what, args]) => {
        const { sandbox_id: id } = await of(noisy).createSandbox({ resources });
        const stream = of(noisy).stream("ProcessService/Exec", { sandbox_id: id, argv: { args } });
        let wrote = false;
        let ended = false;
        stream.on("data", ({ output }) => (wrote ||= output !== undefined && output !== null));
        for (const event of ["end", "error"]) stream.on(event, () => (ended = true));
        return { what, id, isLoud: () => wrote && !ended };
      }),
    );
    const silent = () => greedy.filter(({ isLoud }) => !isLoud()).map(({ what }) => what);
    await eventually(() => silent().length === 0, { describe: silent });

    const took: number[] = [];
    for (let i = 0; i < EXECS; i++) {
      const begun = performance.now();
      const { exit_status: exit } = await of(quiet).run(sandbox, ["true"]);
      took.push(performance.now() - begun);
      expect(exit.exit_code).toBe(0);
    }
    const [p50, p99] = [0.5, 0.99].map((share) => Math.round(percentile(took, share)));
    console.log(`${name}: ${EXECS} commands during the noise: p50 ${p50} ms, p99 ${p99} ms`);
    expect(p99).toBeLessThanOrEqual(WITHIN_MS);
    expect(silent()).toEqual([]);

    const deleted = performance.now();
    await Promise.all(greedy.map(({ id }) => of(noisy).deleteSandbox(id)));
    const left = async () => ({
      listed: (await of(noisy).call("SandboxService/ListSandboxes", {})).sandboxes.length,
      containers: (await containersOf(service.instance)).length,
    });
    expect(await left()).toEqual({ listed: 0, containers: name === "docker" ? 1 : 0 });
    expect(performance.now() - deleted).toBeLessThanOrEqual(GONE_WITHIN_MS);
    expect(await of(quiet).output(sandbox, "echo fine")).toBe("fine\n");
  }, 180_000);
});

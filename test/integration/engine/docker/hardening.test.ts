import { beforeAll, describe, expect, test } from "vitest";
import type { BerthError } from "../../../../src/base/errors.ts";
import { containersOf, docker } from "../../../support/docker.ts";
import { FORK_BOMB, run, sh, spec, useEngine } from "./support.ts";

const { engine, instance } = useEngine();
let ref = "";

beforeAll(async () => {
  ref = (await engine.create(spec({ env: { GREETING: "hello" } }))).ref;
});

describe("as seen from inside", () => {
  test("limits are the spec's", async () => {
    const limit = await sh(
      engine,
      ref,
      "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes",
    );
    expect(Number(limit)).toBe(256 << 20);
    const pids = await sh(
      engine,
      ref,
      "cat /sys/fs/cgroup/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids/pids.max",
    );
    expect(Number(pids)).toBe(64);
  });

  test("a fork bomb ends at the process limit, and takes nothing else down", async () => {
    const bomb = await engine.spawn(ref, { argv: FORK_BOMB, stdin: true }, { data() {}, end() {} });
    await expect.poll(async () => (await engine.usage(ref)).pids).toBeGreaterThan(55);
    expect((await engine.usage(ref)).pids).toBeLessThanOrEqual(64);
    // Whether one more process fits at that moment is chance.
    const meanwhile = await run(engine, ref, ["true"]).catch((error: BerthError) => error);
    expect([0, "TOO_MANY_OPERATIONS"]).toContain(
      "exitCode" in meanwhile ? meanwhile.exitCode : meanwhile.reason,
    );
    bomb.closeStdin();
    expect(await bomb.wait()).not.toBe(0);
    await expect.poll(async () => (await engine.usage(ref)).pids).toBeLessThan(10);
    expect((await run(engine, ref, ["true"])).exitCode).toBe(0);
  });

  test("a process that takes too much memory is ended, but not the sandbox", async () => {
    const { exitCode } = await run(engine, ref, ["python3", "-c", "bytearray(1 << 30)"]);
    expect(exitCode).toBe(137);
    expect((await engine.list())[0]?.state).toBe("running");
  });

  test("there is no network but loopback", async () => {
    expect((await sh(engine, ref, "ls /sys/class/net")).trim()).toBe("lo");
    expect(await sh(engine, ref, "cat /etc/resolv.conf")).toBe("");
  });

  test("orphans are reaped", async () => {
    await sh(engine, ref, "for i in $(seq 20); do (setsid sleep 0.1 &) ; done");
    // A process that has ended and is not reaped still has its name.
    const left = () => sh(engine, ref, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c '(sleep)' || true");
    await expect.poll(left).toBe("0\n");
  });
});

test("the container's settings are those of the security rules", async () => {
  const [container] = await containersOf(instance);
  const { HostConfig: host, Config: config } = await docker.getContainer(container?.Id ?? "").inspect();
  expect(host).toMatchObject({
    Privileged: false,
    NetworkMode: "none",
    LogConfig: { Type: "none" },
    RestartPolicy: { Name: "no" },
    AutoRemove: false,
    Init: true,
    Memory: 256 << 20,
    MemorySwap: 256 << 20,
    NanoCpus: 1_000_000_000,
    Binds: null,
    PidMode: "",
    UsernsMode: "",
  });
  expect(host.SecurityOpt).toEqual(["no-new-privileges:true"]);
  expect(config.WorkingDir).toBe("/");
  expect(config.Labels).toMatchObject({
    "berth.instance": instance,
    "berth.owner": "tester",
    "berth.generation": "1",
  });
});

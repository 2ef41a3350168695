import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { inSeconds, type Sandbox, seconds } from "../../support/wire.ts";

const MIB = 1024 * 1024;

/** Prints a limit of the shell's control group, which versions 1 and 2 have in different places. */
const limit = (v1: string, v2: string): string =>
  `cat /sys/fs/cgroup/${v1} 2>/dev/null || cat /sys/fs/cgroup/${v2}`;
const MEMORY = limit("memory/memory.limit_in_bytes", "memory.max");
const SWAP = limit("memory/memory.memsw.limit_in_bytes", "memory.swap.max");
const PIDS = limit("pids/pids.max", "pids.max");
/** Quota and period in microseconds. */
const CPU = `cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us 2>/dev/null || cat /sys/fs/cgroup/cpu.max`;

const app = useApp();

async function cpuMillis(sandboxId: string): Promise<number> {
  const [quota, period] = (await app.client.output(sandboxId, CPU)).trim().split(/\s+/).map(Number);
  return ((quota ?? 0) / (period ?? 0)) * 1000;
}

describe("a sandbox with all defaults", () => {
  let sandbox: Sandbox;
  let id = "";
  beforeAll(async () => {
    sandbox = await app.client.createSandbox();
    id = sandbox.sandbox_id;
  });
  const output = (line: string): Promise<string> => app.client.output(id, line);

  test("shows the defaults in force", async () => {
    expect(sandbox.sandbox_id).toMatch(/^sbx_[a-z2-7]{20}$/);
    expect(await app.client.getSandbox(id)).toMatchObject({
      state: "SANDBOX_STATE_RUNNING",
      generation: 1,
      engine: "docker",
      isolation: "ISOLATION_LEVEL_CONTAINER",
      owner: "default",
      termination: null,
      spec: {
        working_dir: "/workspace",
        env: { PYTHONUNBUFFERED: "1", TERM: "dumb" },
        resources: { memory_bytes: 512 * MIB, cpu_millis: 1000, pids_limit: 512, disk_bytes: 0 },
        network: { mode: "NETWORK_MODE_NONE" },
        idle_timeout: seconds(3600),
        max_lifetime: null,
        command_timeout: seconds(300),
        labels: {},
        runtime: "",
      },
    });
  });

  test("expires an idle timeout after its last use", async () => {
    const { create_time, last_used_time, expire_time } = await app.client.getSandbox(id);
    expect(inSeconds(last_used_time)).toBeGreaterThanOrEqual(inSeconds(create_time));
    expect(inSeconds(expire_time) - inSeconds(last_used_time)).toBeCloseTo(3600, 0);
  });

  test("has a memory limit, swap included", async () => {
    expect(Number(await output(MEMORY))).toBe(512 * MIB);
    // Version 1 counts memory and swap together, version 2 only swap.
    expect([512 * MIB, 0]).toContain(Number(await output(SWAP)));
  });

  test("has one CPU", async () => {
    expect(await cpuMillis(id)).toBe(1000);
  });

  test("has a process limit", async () => {
    expect(Number(await output(PIDS))).toBe(512);
  });

  test("has no network but loopback", async () => {
    expect(await output("ls /sys/class/net")).toBe("lo\n");
    // Only loopback is routed, so nothing outside answers.
    expect(await output("tail -n +2 /proc/net/route")).toBe("");
    const connect = "import socket; socket.create_connection(('1.1.1.1', 53), 2)";
    const { exit_status: exit, stderr } = await app.client.run(id, ["python3", "-c", connect]);
    expect(exit.exit_code).toBe(1);
    expect(stderr.toString()).toMatch(/unreachable/);
  });

  test("starts commands exactly in its working directory", async () => {
    expect(await output("pwd")).toBe("/workspace\n");
    expect(await output("pwd -P")).toBe("/workspace\n");
    expect((await app.client.run(id, ["pwd"])).stdout.toString()).toBe("/workspace\n");
  });

  test("gives commands the environment of the source system, and little else", async () => {
    const { stdout } = await app.client.run(id, ["env"]);
    const names = stdout.toString().trimEnd().split("\n");
    expect(names).toContain("PYTHONUNBUFFERED=1");
    expect(names).toContain("TERM=dumb");
    // The image's variables, and those that Docker adds; none of the service's.
    const known = /^(PATH|HOME|HOSTNAME|PYTHONUNBUFFERED|TERM|PWD)=/;
    expect(names.filter((line) => !known.test(line))).toEqual([]);
  });

  test("gives no privileges", async () => {
    const status = await output("cat /proc/self/status");
    expect(status).toMatch(/^NoNewPrivs:\t1$/m);
    expect(status).toMatch(/^Seccomp:\t2$/m);
    // At most CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID.
    const effective = BigInt(`0x${/^CapEff:\t(\w+)$/m.exec(status)?.[1]}`);
    expect(effective & ~0b1110_1011n).toBe(0n);
  });
});

describe("a sandbox with every option set", () => {
  let id = "";
  beforeAll(async () => {
    const sandbox = await app.client.createSandbox({
      env: { GREETING: "hello  world", TERM: "xterm", EMPTY: "" },
      working_dir: "/srv/deep/below",
      user: "1234:1234",
      resources: { memory_bytes: 100 * MIB, cpu_millis: 250, pids_limit: 40 },
      labels: { team: "red" },
      idle_timeout: seconds(60),
      max_lifetime: seconds(120),
      command_timeout: seconds(7),
    });
    id = sandbox.sandbox_id;
    expect(sandbox).toMatchObject({
      spec: {
        env: { GREETING: "hello  world", TERM: "xterm", EMPTY: "", PYTHONUNBUFFERED: "1" },
        working_dir: "/srv/deep/below",
        user: "1234:1234",
        resources: { memory_bytes: 100 * MIB, cpu_millis: 250, pids_limit: 40 },
        labels: { team: "red" },
        idle_timeout: seconds(60),
        max_lifetime: seconds(120),
        command_timeout: seconds(7),
      },
    });
  });
  const output = (line: string): Promise<string> => app.client.output(id, line);

  test("has its environment, including empty and overridden variables", async () => {
    expect(await output('printf "%s|%s|%s|%s" "$GREETING" "$TERM" "$EMPTY" "$PYTHONUNBUFFERED"')).toBe(
      "hello  world|xterm||1",
    );
    expect((await app.client.run(id, ["env"])).stdout.toString()).toMatch(/^EMPTY=$/m);
  });

  test("has its limits", async () => {
    expect(Number(await output(MEMORY))).toBe(100 * MIB);
    expect(await cpuMillis(id)).toBe(250);
    expect(Number(await output(PIDS))).toBe(40);
  });

  test("runs as its user in a working directory of that user's", async () => {
    expect(await output("id -u; id -g; pwd; touch mine && stat -c %u:%g mine")).toBe(
      "1234\n1234\n/srv/deep/below\n1234:1234\n",
    );
  });

  test("expires with its lifetime although it is in use", async () => {
    await output("true");
    const { create_time, expire_time } = await app.client.getSandbox(id);
    expect(inSeconds(expire_time) - inSeconds(create_time)).toBeLessThan(120.5);
  });
});

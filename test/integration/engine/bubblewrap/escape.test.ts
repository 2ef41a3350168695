import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client } from "../../../support/client.ts";
import { eventually } from "../../../support/eventually.ts";
import { nodeAsOrdinaryUser, PROGRAM } from "../../../support/ordinary-user.ts";
import { MAIN } from "../../../support/program.ts";
import { scaled } from "../../../support/scale.ts";
import { seconds } from "../../../support/wire.ts";

const SECRET = "a-secret-of-the-service-4711";

/** A service in its own process, as root or as an ordinary user. */
class Service {
  readonly child: ChildProcess;
  readonly dataDir: string;
  client = new Client("127.0.0.1:1");

  constructor(who: "root" | "an ordinary user") {
    this.dataDir =
      who === "root" ? mkdtempSync(path.join(tmpdir(), "berth-escape-")) : "/tmp/berth-user-data";
    const args = ["serve", "--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--log-level", "error"];
    const env = { BERTH_SECRET_FOR_TEST: SECRET };
    if (who === "root") {
      this.child = spawn(process.execPath, [MAIN, ...args, "--data-dir", this.dataDir], {
        stdio: ["ignore", "pipe", "inherit"],
        env: { ...process.env, ...env },
      });
    } else this.child = nodeAsOrdinaryUser([PROGRAM, ...args], env).child;
  }

  async ready(): Promise<void> {
    const { stdout } = this.child;
    if (stdout === null) throw new Error("it has no stdout");
    for await (const line of createInterface({ input: stdout })) {
      const address = /listens on (\S+?);/.exec(line)?.[1];
      if (address === undefined) continue;
      this.client.close();
      this.client = new Client(address);
      return;
    }
    throw new Error(`the service did not start: ${this.child.stderr && (await text(this.child.stderr))}`);
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    this.client.close();
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const exited = once(this.child, "exit");
      this.child.kill(signal);
      await exited;
    }
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}

describe.each(["root", "an ordinary user"] as const)("for %s", (who) => {
  const service = new Service(who);
  let id = "";
  let neighbour = "";
  beforeAll(async () => {
    await service.ready();
    id = (await service.client.createSandbox({ env: { MINE: "yes" } })).sandbox_id;
    neighbour = (await service.client.createSandbox()).sandbox_id;
  });
  afterAll(() => service.end("SIGTERM"));

  const inside = async (line: string): Promise<{ code: number; out: string }> => {
    const { stdout, stderr, exit_status: exit } = await service.client.run(id, line);
    return { code: exit.exit_code, out: `${stdout}${stderr}` };
  };

  test("a process has no useful capability, and cannot gain one", async () => {
    const { out } = await inside("grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs):' /proc/self/status");
    expect(out.match(/Cap\w+:\s+0{16}/g)).toHaveLength(4);
    expect(out).toMatch(/NoNewPrivs:\s+1/);
    expect((await inside("id -u; cat /proc/self/uid_map")).out).toMatch(/^1000\n\s+1000\s+0\s+1\n$/);
  });

  test.each([
    "mount -t tmpfs none /mnt",
    "mount -o remount,rw /usr",
    "mount --bind / /tmp",
    "umount /usr",
    "umount /etc",
    "unshare --user true",
    "unshare --mount true",
    "unshare --pid --fork true",
    "nsenter --target 1 --user true",
    "nsenter --target 1 --mount true",
    "mknod /tmp/disk b 8 0",
    "chroot / true",
    "echo 1 >/proc/sys/kernel/panic",
    "echo b >/proc/sysrq-trigger",
    "echo 10000 >/proc/sys/user/max_user_namespaces",
    "cat /proc/kcore | head -c 1 | grep -q .",
    "hostname other",
    "ip link set lo down || ifconfig lo down",
    "kill -9 1; sleep 0.2; kill -0 1; exit 1",
  ])("%s is refused", async (line) => {
    expect((await inside(line)).code).not.toBe(0);
    expect(await service.client.output(id, "echo alive")).toBe("alive\n");
  });

  test.each([
    "/etc/shadow",
    "/etc/sudoers",
    "/root",
    "/var/lib/berth",
    "/var/lib/docker",
    "/boot",
    "/mnt",
    "/media",
  ])("%s is not visible", async (name) => {
    expect((await inside(`ls -d ${name}`)).code).not.toBe(0);
  });

  test("the files that hold the service's data, environment and descriptors are not visible", async () => {
    expect((await inside(`ls -d ${service.dataDir}`)).code).not.toBe(0);
    expect((await inside("ls /tmp /home /run /workspace")).out).not.toMatch(/berth-|docker|\.sock/);
    const { out } = await inside("cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'");
    expect(out).toContain("MINE=yes");
    expect(out).not.toContain(SECRET);
    expect(out).not.toContain(service.dataDir);
    expect((await inside("env; ls -l /proc/self/fd")).out).not.toMatch(/BERTH|socket:|berth-/);
  });

  test("no socket of the host is reachable", async () => {
    expect(
      (await inside("find / -xdev -type s 2>/dev/null | head; ls /run/docker.sock /var/run")).out,
    ).not.toMatch(/docker\.sock$/m);
    const { out } = await inside(
      "cat /proc/net/unix /proc/net/tcp | wc -l; ls /sys/class/net 2>/dev/null; cat /proc/net/dev | grep -c :",
    );
    // The headers of both tables, and only loopback.
    expect(out.trim().split(/\s+/)).toEqual(["2", "1"]);
  });

  test("no process of the host or of another sandbox can be seen or signaled", async () => {
    const hidden = service.client.exec(neighbour, "exec sleep 54.3");
    await hidden.processId;
    const { out } = await inside("cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
    expect(out).not.toMatch(/sleep 54\.3|node|src\/main|nsenter/);
    const numbers = (await inside("ls -d /proc/[0-9]* | wc -l")).out;
    expect(Number(numbers)).toBeLessThan(20);
    await inside("kill -9 -1");
    expect(hidden.output).toEqual({ stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) });
    const still = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done | grep -cx 'sleep 54.3 '";
    // A start is reported before the program has replaced the shell.
    await expect.poll(async () => (await service.client.run(neighbour, still)).stdout.toString()).toBe("1\n");
    hidden.cancel();
    // That ended the sandbox's own main process, which is allowed.
    id = (await service.client.createSandbox({ env: { MINE: "yes" } })).sandbox_id;
  });

  test("nothing of the host can be written", async () => {
    const { out } = await inside(
      "for d in / /usr /etc /bin /lib /sys /dev /proc /usr/bin /usr/local /etc/ssl /sys/fs/cgroup; do " +
        "touch $d/berth-was-here 2>/dev/null && echo $d; done; " +
        `find /usr /etc /sys -xdev -maxdepth ${scaled(99, 4)} -writable -not -type l 2>/dev/null | head; true`,
    );
    // The root directory belongs to the sandbox, with everything in it.
    expect(out.trim()).toBe("/");
    expect(
      (await inside("for f in /usr/bin/env /etc/passwd; do chmod 777 $f && echo $f; done; true")).out,
    ).not.toMatch(/^\/(usr|etc)/m);
  });

  test("one sandbox sees no file of another", async () => {
    await service.client.output(
      neighbour,
      "echo theirs >/workspace/f; echo theirs >/tmp/f; echo theirs >/dev/shm/f",
    );
    expect((await inside("cat /workspace/f /tmp/f /dev/shm/f")).out).not.toContain("theirs");
  });

  test.each([
    ["spec.mounts", { mounts: [{ host_path: "/etc", target: "/mnt/x" }] }, "PERMISSION_DENIED"],
    ["network", { network: { mode: "NETWORK_MODE_EGRESS" } }, "FAILED_PRECONDITION"],
    ["image", { image: "debian:12" }, "FAILED_PRECONDITION"],
    ["user", { user: "root" }, "INVALID_ARGUMENT"],
    ["working_dir", { working_dir: "/proc/self/fd/8" }, "INVALID_ARGUMENT"],
  ])("%s that is not allowed is refused", async (_, spec, code) => {
    const error = await service.client.createSandbox(spec).then(
      () => undefined,
      (thrown) => thrown,
    );
    expect(error?.message).toContain(code);
  });

  test("a fork bomb, a full disk and a flood of output do not affect the neighbour", async () => {
    const resources = { memory_bytes: 64 << 20, pids_limit: 64 };
    const { sandbox_id: greedy } = await service.client.createSandbox({ resources });
    const bomb = service.client.exec(greedy, "b() { b | b & }; b; sleep 1");
    const disk = service.client.run(greedy, "head -c 500000000 /dev/zero >/tmp/full");
    const ended = Promise.allSettled([disk, bomb.result]);
    expect(await service.client.output(neighbour, "echo fine")).toBe("fine\n");
    await service.client.call("SandboxService/DeleteSandbox", { sandbox_id: greedy, grace: seconds(0) });
    await ended;
    expect(await service.client.output(neighbour, "echo fine")).toBe("fine\n");
  });
});

describe.each(["root", "an ordinary user"] as const)("after SIGKILL of the service of %s", (who) => {
  test("no process, control group, mount or file is left", async () => {
    const service = new Service(who);
    try {
      await service.ready();
      const { pid = 0 } = service.child;
      const ids = await Promise.all(
        Array.from({ length: 5 }, async () => (await service.client.createSandbox()).sandbox_id),
      );
      for (const id of ids) {
        await service.client.exec(id, "setsid sleep 1000.5 & exec sleep 1000.5").processId;
      }
      if (who === "root") await service.client.call("SandboxService/PauseSandbox", { sandbox_id: ids[0] });
      // For each sandbox: bwrap twice, the main process, and what runs there.
      await expect.poll(() => descendantsOf(pid).length).toBeGreaterThan(5 * 5);
      const children = descendantsOf(pid);
      expect(tracesOf(pid).length).toBeGreaterThan(0);
      await service.end("SIGKILL");
      const left = () => [...children.filter(isAlive), ...tracesOf(pid)];
      await eventually(() => left().length === 0, { describe: left });
    } finally {
      await service.end("SIGKILL");
    }
  });
});

/** A process, identified by pid and start time. */
interface Running {
  readonly pid: number;
  readonly parent: number;
  readonly begun: string;
}

function descendantsOf(pid: number): Running[] {
  const all = readdirSync("/proc").flatMap((name) =>
    /^\d+$/.test(name) ? (statOf(Number(name)) ?? []) : [],
  );
  const below = (parent: number): Running[] =>
    all.filter((process) => process.parent === parent).flatMap((process) => [process, ...below(process.pid)]);
  return below(pid);
}

function isAlive({ pid, begun }: Running): boolean {
  return statOf(pid)?.begun === begun;
}

/** Undefined if it has ended. */
function statOf(pid: number): Running | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "latin1")
      .replace(/^.*\) /s, "")
      .split(" ");
    if (fields[0] === "Z" || fields[0] === "X") return undefined;
    return { pid, parent: Number(fields[1]), begun: fields[19] ?? "" };
  } catch {
    return undefined;
  }
}

/** Directories, control groups and mounts with a service's pid in their names. */
function tracesOf(pid: number): string[] {
  // An ordinary user's temporary files are in a home below. find complains about files that others remove meanwhile.
  const find = (place: string, depth: number) =>
    spawnSync("find", [place, "-maxdepth", `${depth}`, "-name", `berth-${pid}-*`, "-prune"], {
      encoding: "utf8",
    }).stdout;
  const found = find("/sys/fs/cgroup", 5) + find(tmpdir(), 3);
  const mounts = readFileSync("/proc/self/mounts", "utf8").split("\n");
  return [...found.split("\n").filter(Boolean), ...mounts.filter((line) => line.includes(`berth-${pid}-`))];
}

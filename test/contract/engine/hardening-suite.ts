import { chmodSync, chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { release, tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { HostMount } from "../../../src/engine/port.ts";
import { failure, run, sh } from "../../integration/engine/docker/support.ts";
import type { Subject } from "./subject.ts";

const SYSTEM_CALLS = readFileSync(new URL("system-calls.py", import.meta.url), "utf8");

/** Properties of an engine's sandboxes in which engines differ. */
export interface Hardening {
  readonly subject: Subject;
  /** A directory whose subdirectories the engine may mount: {@link useSharedDirectory}. */
  readonly shared: string;
  /** The capabilities of commands, by their numbers in linux/capability.h. */
  readonly capabilities: readonly number[];
  /**
   * Whether sandboxes have their own kernel. It handles all system calls, and its settings, devices and mount options
   * affect only the sandbox.
   */
  readonly ownKernel?: boolean;
  /**
   * Whether mounted directories are `nosuid` and `nodev`. On Docker this requires a service that runs as root. Default:
   * true unless {@link ownKernel}.
   */
  readonly mountsAreShut?: boolean;
  /** Variables in addition to the sandbox's, `HOME`, `PATH` and `PWD`. Default `HOSTNAME`. */
  readonly environment?: readonly string[];
  /** Why the engine cannot mount directories of the host. It then refuses all of them. */
  readonly noMounts?: string;
  /**
   * The name of a process that is not part of the sandbox's container, with the reason. It has no effective
   * capabilities.
   */
  readonly besides?: { readonly name: string; readonly reason: string };
  /** System calls that are not blocked, with the reason. */
  readonly open?: { readonly calls: readonly string[]; readonly reason: string };
}

/** A directory of the host for mounts, which is removed after the file's tests. */
export function useSharedDirectory(): string {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-shared-"));
  chmodSync(dir, 0o755);
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** What code in a sandbox finds when it looks for a way out. It must be the same on every engine. */
export function hardeningSuite({
  subject,
  shared,
  capabilities,
  ownKernel = false,
  mountsAreShut = !ownKernel,
  environment = ["HOSTNAME"],
  noMounts,
  besides,
  open,
}: Hardening): void {
  const { engine, spec } = subject;
  let ref = "";
  beforeAll(async () => {
    ({ ref } = await engine.create(spec({ env: { GREETING: "hello" } })));
  });
  // Other suites of the file may remove this suite's sandbox. Then create it again.
  beforeEach(async () => {
    const found = (await engine.list()).some((one) => one.ref === ref && one.state === "running");
    if (!found) ({ ref } = await engine.create(spec({ env: { GREETING: "hello" } })));
  });
  afterAll(() => engine.remove(ref).catch(() => {}));
  const inside = (line: string) => sh(engine, ref, line);
  /** Tests of what is harmless if the sandbox has its own kernel. */
  const testOnHostKernel = (name: string, body: () => Promise<void>): void => {
    if (!ownKernel) test(name, body);
  };

  test("the kernel is the one that the isolation level promises", async () => {
    const own = (await inside("cat /proc/sys/kernel/osrelease /proc/version")).split("\n");
    expect(own[0] !== release() || own[1] !== readFileSync("/proc/version", "latin1").trim()).toBe(ownKernel);
    if (!ownKernel) return;
    // A change of this setting affects only the sandbox.
    const setting = "/proc/sys/net/core/somaxconn";
    const before = readFileSync(setting, "latin1");
    await inside(`echo 77 >${setting} || true; mount -t tmpfs none /mnt || true`);
    expect(readFileSync(setting, "latin1")).toBe(before);
  });

  test("a server on loopback is found as localhost", async () => {
    const connect = `import socket
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(("localhost", server.getsockname()[1]))
print(server.accept()[1][0])`;
    const { stdout, stderr } = await run(engine, ref, ["python3", "-c", connect]);
    expect(stdout.toString(), stderr.toString()).toBe("127.0.0.1\n");
  });

  test("every process has only a few capabilities, no way to gain more, and a filter of system calls", async () => {
    // A process of an earlier command may end meanwhile.
    const text = await inside("cat /proc/[0-9]*/status /proc/self/status 2>/dev/null || true");
    const processes = text.split(/^(?=Name:)/m);
    // Process 1, the main process, the shell and cat.
    expect(processes.length).toBeGreaterThanOrEqual(4);
    const allowed = capabilities.reduce((mask, number) => mask | (1n << BigInt(number)), 0n);
    const field = (process: string, name: string) =>
      new RegExp(`^${name}:\\s*(\\w+)$`, "m").exec(process)?.[1] ?? "";
    for (const process of processes) {
      const isBeside = field(process, "Name") === besides?.name;
      if (isBeside) expect([field(process, "CapEff"), field(process, "CapPrm")].join("")).toMatch(/^0+$/);
      for (const set of isBeside ? [] : ["CapEff", "CapPrm", "CapBnd"])
        expect(BigInt(`0x${field(process, set)}`), `${set} of ${process}`).toBe(allowed);
      for (const set of ["CapInh", "CapAmb"])
        expect(BigInt(`0x${field(process, set)}`), `${set} of ${process}`).toBe(0n);
      expect([field(process, "NoNewPrivs"), field(process, "Seccomp")], process).toEqual([
        "1",
        ownKernel ? "0" : "2",
      ]);
    }
  });

  testOnHostKernel("system calls that reach deep into the kernel are refused", async () => {
    const { exitCode, stdout, stderr } = await run(engine, ref, ["python3", "-c", SYSTEM_CALLS]);
    expect(exitCode, stderr.toString()).toBe(0);
    const results = new Map(
      stdout
        .toString()
        .trimEnd()
        .split("\n")
        .map((line) => [line.slice(0, line.lastIndexOf(" ")), line.slice(line.lastIndexOf(" ") + 1)]),
    );
    expect(results.size).toBeGreaterThan(45);
    const refused = /^(EPERM|EACCES|ENOSYS|EAFNOSUPPORT)$/;
    const through = [...results].filter(
      ([name, error]) => !refused.test(error) && !open?.calls.includes(name),
    );
    expect(through).toEqual([]);
  });

  test("system calls of other processor modes are refused too", async () => {
    // On x86-64: personality(ADDR_NO_RANDOMIZE) with int 0x80, and getpid with the x32 bit. Other architectures have no
    // such calls.
    const script = `import ctypes, mmap, os, platform
for code in ("53 bb00000400 b888000000 cd80 5b c3", "b827000040 0f05 c3") if platform.machine() == "x86_64" else ():
    child = os.fork()
    if child == 0:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex(code))
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        os._exit(0 if call() < 0 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
`;
    const { exitCode, stdout, stderr } = await run(engine, ref, ["python3", "-c", script]);
    expect(exitCode, stderr.toString()).toBe(0);
    // The call fails, or SIGSYS kills the process.
    expect(stdout.toString()).toMatch(/^((0|-31)\n)*$/);
  });

  test("a process may trace its own child, as a debugger does", async () => {
    const script = `import ctypes, os, signal
child = os.fork()
if child == 0:
    signal.pause()
seize = ctypes.CDLL(None, use_errno=True).ptrace(0x4206, child, None, None)
os.kill(child, signal.SIGKILL)
print(seize)`;
    expect((await run(engine, ref, ["python3", "-c", script])).stdout.toString()).toBe("0\n");
  });

  testOnHostKernel("there are no devices but the harmless ones", async () => {
    const found = (await inside("find /dev -type b -o -type c")).trim().split("\n");
    const harmless = /^\/dev\/(null|zero|full|random|urandom|tty|console|ptmx|pts\/(ptmx|\d+))$/;
    expect(found.filter((name) => !harmless.test(name))).toEqual([]);
  });

  testOnHostKernel("nothing of the kernel can be written", async () => {
    const places = "/proc/sys /proc/irq /proc/bus /proc/fs /proc/sysrq-trigger /sys";
    expect(await inside(`find ${places} -type f -writable 2>/dev/null || true`)).toBe("");
  });

  test.each([
    "/proc/kcore",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/sys/firmware",
  ])("%s shows nothing", async (name) => {
    expect(
      await inside(
        `{ if [ -d ${name} ]; then ls -A ${name}; else head -c 1 ${name}; fi; } 2>/dev/null || true`,
      ),
    ).toBe("");
  });

  test("only the sandbox's own processes are visible", async () => {
    const commands = await inside("cat /proc/[0-9]*/comm 2>/dev/null || true");
    expect(commands).not.toMatch(/^(node|dockerd|containerd|xargs|nsenter|systemd)/m);
    expect(commands.trim().split("\n").length).toBeLessThan(12);
  });

  test("environments and descriptors show nothing of the service", async () => {
    const names = (await inside("env | sort | sed 's/=.*//'")).split("\n").filter(Boolean);
    expect(names.sort()).toEqual(["GREETING", "HOME", "PATH", "PWD", ...environment].sort());
    expect(await inside("cat /proc/[0-9]*/environ | tr '\\0' '\\n'")).not.toMatch(/BERTH|VITEST|NODE|npm/);
    // The listing itself is the fourth.
    expect((await inside("ls /proc/self/fd")).trim().split("\n")).toEqual(["0", "1", "2", "3"]);
    expect(await inside("ls -l /proc/[0-9]*/fd 2>/dev/null || true")).not.toMatch(
      /socket:|\.sqlite|berth-\w+\//,
    );
  });

  test("no socket of a container engine is visible", async () => {
    expect(await inside("find / -xdev -type s 2>/dev/null || true")).toBe("");
    expect(
      await inside(
        "ls -d /run/docker* /run/containerd* /run/podman /run/podman/* /var/run/docker* 2>/dev/null || true",
      ),
    ).toBe("");
    expect((await inside("cat /proc/net/unix")).trim().split("\n")).toHaveLength(1);
  });

  test("core dumps are off and open files limited, and that cannot be changed", async () => {
    expect(await inside("ulimit -Hc")).toBe("0\n");
    expect(Number(await inside("ulimit -Hn"))).toBeLessThanOrEqual(16_384);
    expect((await run(engine, ref, ["sh", "-c", "ulimit -Hc 1"], { user: subject.user })).exitCode).not.toBe(
      0,
    );
  });

  describe("refused before a sandbox exists:", () => {
    const mount = (hostPath: string): HostMount => ({
      kind: "host",
      hostPath,
      target: "/mnt/x",
      readOnly: true,
      giveToUser: false,
    });
    beforeAll(() => {
      mkdirSync(path.join(shared, "inside"));
      symlinkSync("/etc", path.join(shared, "link"));
    });

    test.each([
      ["the whole machine", () => "/"],
      ["a way up", () => `${shared}/inside/../../..`],
      ["a link out of what is allowed", () => path.join(shared, "link")],
      ["a container engine's socket", () => "/var/run/docker.sock"],
      ["the directory of that", () => "/var/run"],
      ["the kernel's own", () => "/proc/1/root"],
    ])("%s as a mount", async (_, source) => {
      const before = await engine.list();
      const reason = noMounts === undefined ? "NOT_ALLOWED" : "UNSUPPORTED";
      await failure(engine.create(spec({ mounts: [mount(source())] })), reason);
      expect((await engine.list()).length).toBe(before.length);
    });
  });

  test.each(["/proc/self/fd/8", "/proc/self/fd/7/../../../..", "/proc/1/root", "/dev/fd/8"])(
    "the working directory %s leads nowhere",
    async (workingDir) => {
      const before = await engine.list();
      const made = await engine.create(spec({ workingDir })).catch((error: Error) => error);
      if (made instanceof Error) {
        expect(made).toMatchObject({ reason: "INVALID_ARGUMENT" });
        expect((await engine.list()).length).toBe(before.length);
        return;
      }
      // Some of these are ordinary directories of the sandbox.
      try {
        const way = `cd ${workingDir} 2>/dev/null && ls -d .${shared} ../../../..${shared} 2>/dev/null || true`;
        expect(await sh(engine, made.ref, way)).toBe("");
      } finally {
        await engine.remove(made.ref);
      }
    },
  );

  // Without mounts there is no place to plant a set-user-id file.
  test.runIf(noMounts === undefined)(
    "a set-user-id file planted in a mounted directory has no effect",
    async () => {
      const host = path.join(shared, "planted");
      mkdirSync(host);
      chmodSync(host, 0o777);
      const mounts = [
        { kind: "host" as const, hostPath: host, target: "/mnt/planted", readOnly: false, giveToUser: false },
      ];
      const made = await engine.create(spec({ mounts }));
      try {
        await sh(engine, made.ref, "cp /usr/bin/id /mnt/planted/id");
        if (process.getuid?.() === 0) chownSync(path.join(host, "id"), 0, 0);
        chmodSync(path.join(host, "id"), 0o6755);
        const ids = "for o in -u -ru -g -rg; do /mnt/planted/id $o; done";
        const [user, realUser, group, realGroup] = (await sh(engine, made.ref, ids, subject.user))
          .trim()
          .split("\n");
        expect([user, group]).toEqual([realUser, realGroup]);
        expect(user).not.toBe("0");
        if (mountsAreShut) {
          const mounted = await sh(engine, made.ref, "grep ' /mnt/planted ' /proc/self/mountinfo");
          expect(mounted).toMatch(/nosuid,nodev/);
        }
      } finally {
        await engine.remove(made.ref);
      }
    },
  );
}

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { quote } from "../../../../src/base/shell-quote.ts";
import { DockerEngine } from "../../../../src/engine/docker/engine.ts";
import type { Engine, EngineSandboxSpec, FirstShell, SpawnRequest } from "../../../../src/engine/port.ts";
import { docker, processesIn, rawExec, rawShell } from "../../../support/docker.ts";
import { eventually } from "../../../support/eventually.ts";
import { BUSYBOX_IMAGE, TEST_IMAGE } from "../../../support/images.ts";
import type { ScriptShell } from "../../../support/script-shell.ts";
import { failure, type Outcome, run, silent, spec, useEngine } from "./support.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-zygote-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const pipesDir = path.join(directory, "pipes");
const { engine, instance } = useEngine({ pipesDir });
const POLL = { timeoutMs: 60_000 };
/** A wait for something that never comes takes longer each time; a busy machine only sometimes does. */
const AT_ONCE_MS = 1_500;

/**
 * Fails unless some work is done at once, in one of many tries. What `other` takes just before does not count: how long
 * the daemon itself takes depends on the machine's load.
 */
async function expectAtOnce(work: () => Promise<void>, other: () => Promise<unknown>): Promise<void> {
  const once = async (): Promise<number> => {
    const before = performance.now();
    await other();
    const start = performance.now();
    await work();
    return performance.now() - start - (start - before);
  };
  await expect.poll(once, { timeout: 120_000 }).toBeLessThan(AT_ONCE_MS);
}

/** Its /bin/sh is bash. */
const BASH_IMAGE = "berth/bash:latest";
const NOBODY_LISTENS = { data() {}, end() {} };

/** Everything that a process inherits, in a fixed order, without the shell's own variables. */
const INHERITED = `
grep -E '^(Uid|Gid|Sig(Ign|Blk)|Cap|NoNewPrivs|Seccomp):' /proc/self/status
for group in $(sed -n 's/^Groups://p' /proc/self/status); do echo "group $group"; done | sort
cat /proc/self/cgroup /proc/self/limits /proc/self/oom_score_adj
for name in ns/mnt ns/pid ns/net ns/ipc ns/uts cwd; do readlink /proc/self/$name; done
for fd in 3 4 5 6 7 8 9 10 11 12; do [ ! -e /proc/$$/fd/$fd ] || readlink /proc/$$/fd/$fd; done
umask
env | grep -vE '^(PWD|OLDPWD|SHLVL|_)=' | sort
set -- $(cut -d' ' -f5,6 /proc/$$/stat)
[ "$1 $2" = "$$ $$" ] && echo leads a session
`;

/** The user and groups of a process. */
const IDENTITY = `
grep -E '^(Uid|Gid):' /proc/self/status
for group in $(sed -n 's/^Groups://p' /proc/self/status); do echo "group $group"; done | sort
echo "$HOME"
`;

/** Prints whether the daemon or the zygote started a shell: the daemon's shells have no parent in the container. */
const WHOSE = "[ $PPID = 0 ] && echo daemon || echo zygote";

/** Uses up the limit of processes until its stdin ends. */
const FILL = `
import os
try:
    while os.fork(): pass
except OSError: pass
os.read(0, 1)
`;

/** Takes what is written to the zygote's answers. */
const STEAL = `
import os
answers = os.open("/run/berth-pipes/answers", os.O_RDONLY | os.O_NONBLOCK)
print("steals", flush=True)
while True:
    try: os.read(answers, 4096)
    except BlockingIOError: pass
`;

const byShell = (script: string): readonly string[] => ["/bin/sh", "-c", script];
const shell = (on: Engine, ref: string, script: string, more: Partial<SpawnRequest> = {}): Promise<Outcome> =>
  run(on, ref, byShell(script), more);
const textOf = ({ stdout }: Outcome): string => stdout.toString();
const whose = async (on: Engine, ref: string, more?: Partial<SpawnRequest>): Promise<string> =>
  textOf(await shell(on, ref, WHOSE, more)).trim();

describe.each([
  ["Debian", TEST_IMAGE],
  ["busybox", BUSYBOX_IMAGE],
])("a process that a zygote starts in %s is like one that the daemon starts", (_, image) => {
  test.each<[string, string, Readonly<Record<string, string>>]>([
    ["root", "", {}],
    ["a user by name", "nobody", {}],
    ["a user by number", "65534", {}],
    ["a number that no user has", "1234", {}],
    ["a user with a group", "nobody:0", {}],
    ["a user with a group by name", "nobody:root", {}],
    ["a number with a number", "1234:4321", {}],
    ["with HOME in the sandbox's environment", "nobody", { HOME: "/elsewhere" }],
    ["with an odd environment", "", { user: "u", dir: "d", name: "n", x: "y z'\n", IFS: ":", BERTH_N: "b" }],
  ])("as %s", async (_, user, env) => {
    const { ref } = await engine.create(spec({ image, user, env }));
    const container = docker.getContainer(ref);
    const raw = await rawExec(container, byShell(INHERITED), { user: user || "0", workingDir: "/" });
    const forked = await shell(engine, ref, INHERITED);
    expect(await whose(engine, ref)).toBe("zygote");
    expect(textOf(forked)).toBe(raw.stdout.toString());
    expect(textOf(forked)).toContain("leads a session");
    await engine.remove(ref);
  });
});

const BOB = "bob:x:1000:1000::/home/bob:/bin/sh\n";
const TEAM = "team:x:3000:bob\n";
/** The identities that the daemon finds in the lists of a case: the same in every image. */
const asDaemon = new Map<string, string | undefined>();

describe.each([
  ["Debian", TEST_IMAGE],
  ["busybox", BUSYBOX_IMAGE],
  ["bash", BASH_IMAGE],
])("unusual user lists in %s are read as the daemon reads them", (_, image) => {
  // Each case writes both lists, which are read each time.
  let ref = "";
  let root: ScriptShell;
  beforeAll(async () => {
    ({ ref } = await engine.create(spec({ image })));
    root = await rawShell(docker.getContainer(ref));
  });
  afterAll(() => engine.remove(ref));

  test.each([
    ["carriage returns", BOB.replace("\n", "\r\n"), TEAM.replace("\n", "\r\n"), ["bob", "1000"]],
    ["spaces", ` ${BOB}`, "team:x:3000:bob \n", ["bob", "1000"]],
    ["no newline at the end", BOB.trim(), TEAM.trim(), ["bob", "1000", "bob:team"]],
    ["comments and empty lines", `# users\n\n${BOB}`, `\n# groups\n${TEAM}`, ["bob", "1000", "0"]],
    ["a gid that is not a number", "bob:x:1000:abc::/h:/bin/sh\n", TEAM, ["bob", "1000"]],
    ["missing fields", "bob:x:1000\n", "other:x\nteam:x:3000\n", ["bob", "1000", "1000:team"]],
    ["leading zeros", "bob:x:01000:0077::/h:/bin/sh\n", "team:x:03000:bob\n", ["bob", "1000", "5:3000"]],
    ["a group named by a number", BOB, "77:x:5:bob\n", ["bob", "bob:77", "1000:77"]],
    ["numbers that are too long", "bob:x:1000:4294967296::/h:\n", "t:x:4294967297:bob\n", ["bob", "1000"]],
    [
      "odd users",
      BOB,
      TEAM,
      ["+5", "007", "1000:4294967295", "1000:4294967296", "2147483648", "0:", "a:b:c"],
    ],
    ["users of odd names", `+5:x:5:5::/:\n${BOB}`, "+6:x:7:\n", ["+5", "bob:+6"]],
  ])("%s", async (name, passwd, group, users) => {
    const container = docker.getContainer(ref);
    const lists = `printf %s ${quote(passwd)} >/etc/passwd && printf %s ${quote(group)} >/etc/group`;
    expect(await root.run(lists)).toMatchObject({ exitCode: 0 });
    for (const user of users) {
      const key = `${name}: ${user}`;
      if (!asDaemon.has(key)) {
        const raw = await rawExec(container, byShell(IDENTITY), { user }).catch(() => undefined);
        asDaemon.set(key, raw?.exitCode === 0 ? raw.stdout.toString() : undefined);
      }
      const mine = await shell(engine, ref, IDENTITY, { user }).catch(() => undefined);
      expect([user, mine && textOf(mine)]).toEqual([user, asDaemon.get(key)]);
    }
  });
});

describe("a zygote", () => {
  /** A sandbox for cases that leave its zygote as it is. */
  let common = "";
  beforeAll(async () => {
    ({ ref: common } = await engine.create(spec()));
  });
  afterAll(() => engine.remove(common));

  test("knows how a process ended that closed its output long before", async () => {
    const { exitCode } = await shell(engine, common, "exec >/dev/null 2>&1; sleep 3; exit 3");
    expect(exitCode).toBe(3);
  });

  test("starts concurrent requests at once", async () => {
    // A request for a lane is nearly as long.
    const env = { LONG: "x".repeat(3000) };
    const started = await Promise.all(Array.from({ length: 60 }, () => whose(engine, common, { env })));
    expect(new Set(started)).toEqual(new Set(["zygote"]));
  });

  test("is still used after a user that it leaves to the daemon", async () => {
    expect(await whose(engine, common, { user: "007" })).toBe("daemon");
    expect(await whose(engine, common)).toBe("zygote");
  });

  test("leaves variables that the shell does not set to the daemon, at once", async () => {
    const { ref } = await engine.create(spec({ image: BASH_IMAGE }));
    await expectAtOnce(
      async () => expect(await whose(engine, ref, { env: { UID: "5" } })).toBe("daemon"),
      () => rawExec(docker.getContainer(ref), ["true"]),
    );
    await engine.remove(ref);
  });

  test("looks users up each time, as the daemon does", async () => {
    const { ref } = await engine.create(spec());
    const id = async (user: string): Promise<string> =>
      textOf(await shell(engine, ref, "id -u; id -G; echo $HOME", { user }));
    await failure(shell(engine, ref, "id", { user: "ann" }), "INVALID_ARGUMENT");
    await shell(engine, ref, "echo ann:x:2001:2001::/a:/bin/sh >>/etc/passwd");
    expect(await id("ann")).toBe("2001\n2001\n/a\n");
    await shell(engine, ref, "sed -i s/2001/2002/g /etc/passwd; echo team:x:3000:bob,ann >>/etc/group");
    expect(await id("ann")).toBe("2002\n2002 3000\n/a\n");
    await shell(engine, ref, "sed -i /ann/d /etc/passwd");
    await failure(shell(engine, ref, "id", { user: "ann" }), "INVALID_ARGUMENT");
    await engine.remove(ref);
  });

  test.each([
    ["a terminal", { terminal: { columns: 80, rows: 24 } }],
    ["a variable that a shell cannot set", { env: { "a.b": "c" } }],
    ["a request that is longer than a pipe", { env: { LONG: "x".repeat(70_000) } }],
  ])("leaves %s to the daemon", async (_, more) => {
    expect(await whose(engine, common, more)).toBe("daemon");
    expect(await whose(engine, common)).toBe("zygote");
  });

  test("passes on any text", async () => {
    const texts = ["", " ", "'", "a'b\nc\n", '"$BERTH_N"', "$(id)`id`\\", "*?[", "ü€\u{1f600}", "\n"];
    const request = { argv: ["/bin/sh", "-c", 'printf "%s|" "$V" "$@"', "sh", ...texts], env: { V: "v'\n" } };
    const { stdout } = await run(engine, common, request.argv, { env: request.env });
    expect(stdout.toString()).toBe(["v'\n", ...texts, ""].join("|"));
  });

  test.each([TEST_IMAGE, BUSYBOX_IMAGE, BASH_IMAGE])(
    "accepts requests that are longer than a pipe's buffer, in %s",
    async (image) => {
      const { ref } = await engine.create(spec({ image }));
      const text = 'it\'s "$HOME" of `ü`\n'.repeat(400);
      const request = { env: { V: text } };
      const outcomes = await Promise.all(
        Array.from({ length: 6 }, (_, i) =>
          shell(engine, ref, `${WHOSE}; printf %s "$V" # ${"x".repeat(i * 900)}`, request),
        ),
      );
      for (const outcome of outcomes) expect(textOf(outcome)).toBe(`zygote\n${text}`);
      // The next shell has none of them.
      expect(textOf(await shell(engine, ref, 'echo "$V$BERTHZ_T"'))).toBe("\n");
      await engine.remove(ref);
    },
  );

  test("outlives forks that fail, for which the daemon starts processes at once", async () => {
    const { ref } = await engine.create(spec({ resources: { ...spec().resources, pidsLimit: 24 } }));
    const full = await engine.spawn(ref, { argv: ["python3", "-c", FILL], stdin: true }, NOBODY_LISTENS);
    await eventually(async () => (await engine.usage(ref)).pids >= 24, POLL);
    await expectAtOnce(
      // The daemon needs no free process.
      async () => expect(await whose(engine, ref)).toBe("daemon"),
      () => rawExec(docker.getContainer(ref), ["true"]),
    );
    full.closeStdin();
    expect(await full.wait()).toBe(0);
    full.close();
    await expect.poll(() => whose(engine, ref).catch(() => "")).toBe("zygote");
    await engine.remove(ref);
  });

  test.each(["KILL", "STOP"])(
    "that gets SIG%s is replaced by the daemon, and nothing runs twice",
    async (signal) => {
      const { ref } = await engine.create(spec());
      expect(await whose(engine, ref)).toBe("zygote");
      await rawExec(docker.getContainer(ref), byShell(`kill -${signal} ${await pidOf(ref)}`));
      const outcomes = await Promise.all(
        Array.from({ length: 4 }, (_, i) => shell(engine, ref, `echo ${i} >>/tmp/ran; ${WHOSE}; exit ${i}`)),
      );
      expect(outcomes.map((one) => [textOf(one), one.exitCode])).toEqual(
        [0, 1, 2, 3].map((i) => ["daemon\n", i]),
      );
      await rawExec(docker.getContainer(ref), byShell(`kill -CONT ${await pidOf(ref)}`));
      expect(textOf(await shell(engine, ref, "sort /tmp/ran"))).toBe("0\n1\n2\n3\n");
      await engine.remove(ref);
    },
  );

  test("whose answers are read by others is replaced by the daemon", async () => {
    const { ref } = await engine.create(spec());
    const steals = Promise.withResolvers<void>();
    const thief: SpawnRequest = { argv: ["python3", "-c", STEAL], user: "root", stdin: false };
    await engine.spawn(ref, thief, { data: () => steals.resolve(), end() {} });
    await steals.promise;
    const seen: string[] = [];
    const start = async (): Promise<void> => {
      const said = Promise.withResolvers<string>();
      const sink = { data: (_: unknown, chunk: Buffer) => said.resolve(chunk.toString().trim()), end() {} };
      await engine.spawn(ref, { argv: byShell(WHOSE), stdin: false }, sink);
      // The service may be the first to read an answer.
      if (seen.push(await said.promise) && seen.at(-1) === "zygote") await start();
    };
    start().catch((error: Error) => seen.push(error.message));
    await expect.poll(() => seen.at(-1), { timeout: 30_000 }).toBe("daemon");
    await engine.remove(ref);
  });

  test("that was stopped serves again once it continues, and runs no abandoned request", async () => {
    const { ref } = await engine.create(spec());
    const zygote = await pidOf(ref);
    const asRoot = (script: string) => rawExec(docker.getContainer(ref), byShell(script));
    await asRoot(`kill -STOP ${zygote}`);
    expect(textOf(await shell(engine, ref, `echo ran >>/tmp/ran; ${WHOSE}`))).toBe("daemon\n");
    await asRoot(`kill -CONT ${zygote}`);
    await eventually(async () => (await whose(engine, ref)) === "zygote", POLL);
    expect(textOf(await shell(engine, ref, "cat /tmp/ran"))).toBe("ran\n");
    await engine.remove(ref);
  });

  test("reports the signal that ended a shell, although others hold its output", async () => {
    const argv = byShell("sleep 1000 & kill -KILL $$");
    const spawned = await engine.spawn(common, { argv, stdin: true }, NOBODY_LISTENS);
    expect(await spawned.wait()).toBe(137);
    spawned.close();
  });

  test("whose waiting shell is killed loses the exit code, and says so", async () => {
    const argv = byShell("echo $PPID; read x; exit 5");
    const parent = Promise.withResolvers<string>();
    const sink = { data: (_: unknown, chunk: Buffer) => parent.resolve(chunk.toString().trim()), end() {} };
    const spawned = await engine.spawn(common, { argv, stdin: true }, sink);
    await rawExec(docker.getContainer(common), byShell(`kill -KILL ${await parent.promise}`));
    spawned.closeStdin();
    await failure(spawned.wait(), "ENGINE_UNAVAILABLE");
    expect(await whose(engine, common)).toBe("zygote");
  });
});

describe("a shell that starts with its container", () => {
  const FIRST: FirstShell = { argv: ["/bin/sh"], input: Buffer.from("EARLY=yes\n") };
  const first = (changes: Partial<EngineSandboxSpec> = {}) => spec({ firstShell: FIRST, ...changes });
  /** Runs a script in a shell like the first. */
  const enter = async (ref: string, script: string, more: Partial<SpawnRequest> = {}): Promise<string> => {
    const chunks: Buffer[] = [];
    const ended = Promise.withResolvers<void>();
    const sink = { data: (_: unknown, chunk: Buffer) => chunks.push(chunk), end: () => ended.resolve() };
    const input = Buffer.concat([FIRST.input, Buffer.from(script)]);
    const spawned = await engine.spawn(ref, { argv: FIRST.argv, stdin: true, input, ...more }, sink);
    spawned.closeStdin();
    expect(await spawned.wait()).toBe(0);
    await ended.promise;
    return Buffer.concat(chunks).toString();
  };
  const pids = async (ref: string): Promise<string[]> =>
    (await rawExec(docker.getContainer(ref), byShell("cd /proc; echo [0-9]*"))).stdout
      .toString()
      .trim()
      .split(" ");
  const seen = new Set<string>();
  /** A sandbox whose first shell exists: the engine has seen the image and the user before. */
  const create = async (changes: Partial<EngineSandboxSpec> = {}): Promise<string> => {
    const { image, user } = first(changes);
    if (!seen.has(`${image} ${user}`)) {
      const { ref: before } = await engine.create(first(changes));
      await engine.remove(before);
      seen.add(`${image} ${user}`);
    }
    return (await engine.create(first(changes))).ref;
  };

  test.each([
    ["Debian", TEST_IMAGE, "", {}],
    ["Debian, as another user", TEST_IMAGE, "nobody", {}],
    ["Debian, as a user with a group and HOME", TEST_IMAGE, "nobody:0", { HOME: "/elsewhere" }],
    ["busybox", BUSYBOX_IMAGE, "nobody", { user: "u", IFS: ":" }],
    ["bash", BASH_IMAGE, "", {}],
  ])(
    "is like one that the daemon starts, and is used by the first command that fits: %s",
    async (_, image, user, env) => {
      const ref = await create({ image, user, env });
      const container = docker.getContainer(ref);
      await eventually(async () => (await processesIn(container)).length === 5, POLL);
      const there = await pids(ref);
      const raw = await rawExec(container, byShell(INHERITED), { user: user || "0", workingDir: "/" });
      const text = await enter(ref, `echo "$$ $EARLY"; unset EARLY\n${INHERITED}`);
      const [told = "", ...inherited] = text.split("\n");
      const [pid, early] = told.split(" ");
      expect(early).toBe("yes");
      expect(there).toContain(pid);
      expect(inherited.join("\n")).toBe(raw.stdout.toString());
      const [later] = (await enter(ref, "echo $$")).split("\n");
      expect(there).not.toContain(later);
      await engine.remove(ref);
    },
  );

  test.each<[string, Partial<SpawnRequest>]>([
    ["another program", { argv: ["/bin/sh", "-s"] }],
    ["another user", { user: "nobody" }],
    ["an environment", { env: { A: "b" } }],
    ["other input", { input: Buffer.from("echo $$\n") }],
    ["no stdin", { argv: ["/bin/sh", "-c", "echo $$"], stdin: false }],
  ])("is not used for a command that wants %s", async (_, more) => {
    const ref = await create();
    await eventually(async () => (await processesIn(docker.getContainer(ref))).length === 5, POLL);
    const there = await pids(ref);
    expect(there).not.toContain((await enter(ref, "echo $$", more)).trim());
    expect(there).toContain((await enter(ref, "echo $$")).trim());
    await engine.remove(ref);
  });

  test("is replaced if the user of its image has another UID now", async () => {
    const [repo, tag] = ["berth/moved", instance];
    const image = `${repo}:${tag}`;
    const move = async (uid: string): Promise<void> => {
      const made = await docker.createContainer({ Image: TEST_IMAGE, Cmd: ["sleep", "60"] });
      await made.start();
      await rawExec(made, byShell(`sed -i 's/^nobody:x:[0-9]*:/nobody:x:${uid}:/' /etc/passwd`), {
        user: "0",
      });
      await made.commit({ repo, tag, pause: false });
      await made.remove({ force: true });
    };
    await move("4242");
    try {
      const { ref: before } = await engine.create(first({ image, user: "nobody" }));
      expect(await enter(before, "id -u")).toBe("4242\n");
      await engine.remove(before);
      await move("4343");
      const { ref } = await engine.create(first({ image, user: "nobody" }));
      expect(await enter(ref, "id -u; echo $EARLY")).toBe("4343\nyes\n");
      await engine.remove(ref);
    } finally {
      await docker.getImage(image).remove({ force: true });
    }
  });

  test("that nobody uses is removed with its container, also with one that does not start", async () => {
    const descriptors = (): number => readdirSync("/proc/self/fd").length;
    await engine.remove(await create());
    const before = descriptors();
    const container = { workingDir: "/workspace" };
    for (let i = 0; i < 5; i++) {
      const { ref } = await engine.create(first(container));
      await engine.remove(ref);
      await failure(engine.create(first({ workingDir: "/etc/passwd/below" })), "INVALID_ARGUMENT");
    }
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
    expect(readdirSync(pipesDir)).toEqual(["stock"]);
  });
});

test("exit codes outlive the service, also of processes that end while it is down", async () => {
  const left = path.join(directory, "left");
  const options = { instance, logger: silent, pipesDir: left };
  const first = new DockerEngine(options);
  const { ref } = await first.create(spec());
  const start = (code: number) => {
    const argv = byShell(`until [ -e /tmp/end-${code} ]; do sleep 0.1; done; exit ${code}`);
    return first.spawn(ref, { argv, stdin: true }, NOBODY_LISTENS);
  };
  const spawned = [await start(7), await start(8)];
  await first.close();
  const container = docker.getContainer(ref);
  const end = (code: number) => rawExec(container, ["touch", `/tmp/end-${code}`]);
  await end(7);
  await eventually(async () => !(await processesIn(container)).join("\n").includes("end-7"), POLL);
  const second = new DockerEngine(options);
  await second.list();
  // As lanes do, which are opened before processes are recovered.
  expect(await whose(second, ref)).toBe("zygote");
  const found = await second.recover(
    spawned.map(({ handle = "" }) => ({ ref, handle, sink: NOBODY_LISTENS })),
  );
  await end(8);
  await expect(Promise.all(found.map((one) => one?.wait()))).resolves.toEqual([7, 8]);
  await second.remove(ref);
  await second.close();
});

test("an exit code that the service had read, and not kept when it ended, is lost", async () => {
  const options = { instance, logger: silent, pipesDir: path.join(directory, "read") };
  const first = new DockerEngine(options);
  const { ref } = await first.create(spec());
  await eventually(async () => (await whose(first, ref)) === "zygote", POLL);
  const start = async (script: string): Promise<string> => {
    const spawned = await first.spawn(ref, { argv: byShell(script), stdin: false }, NOBODY_LISTENS);
    expect(await spawned.wait()).toBe(7);
    return spawned.handle ?? "";
  };
  // The second one's output does not end with it.
  const handles = [await start("exit 7"), await start("sleep 600 & exit 7")];
  await first.close();
  const second = new DockerEngine(options);
  await second.list();
  const found = await second.recover(handles.map((handle) => ({ ref, handle, sink: NOBODY_LISTENS })));
  const reported: unknown[] = [];
  for (const process of found) process?.wait().then(reported.push, (error) => reported.push(error.message));
  const lost = "How the process ended is lost with the shell that waited for it.";
  await expect.poll(() => reported).toEqual([lost, lost]);
  await second.remove(ref);
  await second.close();
});

/** The pid of a container's zygote, inside the container. */
async function pidOf(ref: string): Promise<string> {
  const script = `for p in /proc/[0-9]*; do [ "$(tr '\\0' ' ' <$p/cmdline)" != '/bin/sh -s --  ' ] || echo \${p#/proc/}; done`;
  const { stdout } = await rawExec(docker.getContainer(ref), byShell(script));
  return stdout.toString().trim();
}

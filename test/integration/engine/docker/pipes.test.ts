import { execFile } from "node:child_process";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import { ContainerPipes } from "../../../../src/engine/docker/container-pipes.ts";
import { DockerEngine } from "../../../../src/engine/docker/engine.ts";
import { PIPES_TARGET } from "../../../../src/engine/docker/named-pipes.ts";
import type { Engine, OutputSink } from "../../../../src/engine/port.ts";
import { docker } from "../../../support/docker.ts";
import { eventually } from "../../../support/eventually.ts";
import { BUSYBOX_IMAGE } from "../../../support/images.ts";
import { withoutDescriptors } from "../../../support/no-descriptors.ts";
import { OwnDocker } from "../../../support/own-docker.ts";
import { newInstance } from "../../../support/settings.ts";
import { run, silent, spec, useEngine } from "./support.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const POLL = { timeoutMs: 60_000 };
const NOBODY_LISTENS: OutputSink = { data() {}, end() {} };
const WHERE = ["/bin/sh", "-c", "readlink /proc/self/fd/1"];

/** The host's ids of the users in a container of the test image. The unnamed one is the sandbox's user. */
const UIDS: Readonly<Record<string, number>> = {
  "": 65_534,
  nobody: 65_534,
  root: 0,
  "0": 0,
  "1234": 1234,
  "daemon:users": 1,
};
const own = { instance: newInstance(), logger: silent };

const namesIn = (pipesDir: string): string[] => readdirSync(pipesDir).filter((entry) => entry !== "stock");

/** The pipes in a container's directory, without other files. */
const pipesIn = (pipesDir: string, name: string): string[] =>
  readdirSync(path.join(pipesDir, name)).filter((entry) => /^[0-9a-f]{24}[ioe]$/.test(entry));

/** The owners of a process's pipes, which nobody else may open. */
async function ownersOfPipes(engine: Engine, ref: string, user: string, pipesDir: string): Promise<number[]> {
  const held = await engine.spawn(
    ref,
    { argv: ["/bin/sh", "-c", "read x"], user, stdin: true },
    NOBODY_LISTENS,
  );
  const [name = ""] = namesIn(pipesDir);
  const pipes = pipesIn(pipesDir, name).map((file) => statSync(path.join(pipesDir, name, file)));
  held.closeStdin();
  expect(await held.wait()).toBe(1);
  await eventually(() => pipesIn(pipesDir, name).length === 0, POLL);
  expect(pipes.map(({ mode }) => mode & 0o777)).toEqual([0o600, 0o600, 0o600]);
  return [...new Set(pipes.map(({ uid }) => uid))];
}

/** Whether a shell's output comes through one of Berth's pipes. */
async function piped(engine: Engine, ref: string): Promise<boolean> {
  return (await run(engine, ref, WHERE)).stdout.toString().startsWith(PIPES_TARGET);
}

/** The same for a shell that starts within a while. */
const pipedSoon = (engine: Engine, ref: string): Promise<boolean> =>
  eventually(() => piped(engine, ref)).catch(() => false);

describe("pipes between a container and the service", () => {
  const pipesDir = path.join(directory, "shared");
  const { engine, instance } = useEngine({ pipesDir });

  test("carry what a shell writes, and are removed with it and its container", async () => {
    const { ref } = await engine.create(spec());
    expect(await piped(engine, ref)).toBe(true);
    const [name = ""] = namesIn(pipesDir);
    await eventually(() => pipesIn(pipesDir, name).length === 0, POLL);
    await engine.remove(ref);
    expect(readdirSync(pipesDir)).toEqual(["stock"]);
  });

  test("cannot be replaced from inside, nor found by a user who is not root there", async () => {
    const { ref } = await engine.create(spec());
    const held = await engine.spawn(ref, { argv: ["/bin/sh", "-c", "read x"], stdin: true }, NOBODY_LISTENS);
    const attempts = [
      `cd ${PIPES_TARGET}; ls . >/tmp/names && for f in $(cat /tmp/names); do mv $f /tmp/; ln -sf /etc/passwd $f; done`,
      `mount -o remount,rw ${PIPES_TARGET}`,
      `touch ${PIPES_TARGET}/new`,
      `chmod 777 ${PIPES_TARGET}`,
    ];
    for (const attempt of attempts) {
      const outcome = await run(engine, ref, ["sh", "-c", attempt], { user: "0" });
      expect(outcome.exitCode, attempt).not.toBe(0);
    }
    const [name = ""] = namesIn(pipesDir);
    const before = pipesIn(pipesDir, name).map((file) => lstatSync(path.join(pipesDir, name, file)));
    expect(before.length).toBe(3);
    expect(before.every((entry) => entry.isFIFO())).toBe(true);
    expect((await run(engine, ref, ["ls", PIPES_TARGET], { user: "nobody" })).exitCode).not.toBe(0);
    held.closeStdin();
    expect(await held.wait()).not.toBe(-1);
    await engine.remove(ref);
  });

  test("share their directory with no file of another container, which root could lease or watch", async () => {
    const pipes = new ContainerPipes(path.join(directory, "apart"), silent);
    for (const container of ["berth-one", "berth-two"]) {
      const made = (await pipes.create(container))?.path ?? "";
      const files = readdirSync(made).map((name) => [name, statSync(path.join(made, name))] as const);
      expect(files.map(([name]) => name).sort()).toEqual([
        ...["answers", "enter", "requests", "undumpable.so", "zygote"],
      ]);
      expect(files.filter(([, { nlink }]) => nlink !== 1).map(([name]) => name)).toEqual([]);
    }
    await pipes.close();
  });

  test("leave nothing of a directory that could not be completed", async () => {
    const root = path.join(directory, "incomplete");
    const pipes = new ContainerPipes(root, silent);
    await pipes.create("berth-one");
    rmSync(path.join(root, "stock", "zygote"));
    expect(await pipes.create("berth-two")).toBe(undefined);
    expect(readdirSync(root).sort()).toEqual(["berth-one", "stock"]);
    await pipes.close();
  });

  test("do not keep a container's directory from being removed while they are opened", async () => {
    const warnings: unknown[] = [];
    const logger = { ...silent, warn: (fields: object) => warnings.push(fields) };
    const pipes = new ContainerPipes(path.join(directory, "busy"), logger);
    for (let round = 0; round < 5; round++) {
      const container = `berth-${round}`;
      const made = (await pipes.create(container))?.path ?? "";
      await pipes.take(container, 0);
      // Removing takes so long that new pipes appear between the listing and the end.
      for (let i = 0; i < 500; i++) writeFileSync(path.join(made, `file${i}`), "");
      const removed = pipes.remove(container);
      for (let taken = 0; taken < 12; taken++) await pipes.take(container, 0).catch(() => {});
      await removed;
      expect(existsSync(made)).toBe(false);
    }
    expect(warnings).toEqual([]);
    await pipes.close();
  });

  test("give EOF to readers that reopen a closed stdin, although the service had no descriptor for a while", async () => {
    const { ref } = await engine.create(spec());
    const argv = ["/bin/sh", "-c", "cat; sleep 1.5; cat /dev/stdin; exit 3"];
    const spawned = await engine.spawn(ref, { argv, stdin: true }, NOBODY_LISTENS);
    const { over } = await withoutDescriptors(700);
    spawned.closeStdin();
    await over;
    const ended = spawned.wait(AbortSignal.timeout(120_000));
    expect(await ended.catch((error: Error) => error.message)).toBe(3);
    await engine.remove(ref);
  });

  test("belong to the process's user alone, however that is named", async () => {
    const { ref } = await engine.create(spec({ user: "nobody" }));
    for (const user of ["", "nobody", "root", "0", "1234", "daemon:users"]) {
      expect(await ownersOfPipes(engine, ref, user, pipesDir), user).toEqual([UIDS[user]]);
    }
    await engine.remove(ref);
  });

  test("are not waited for by an abandoned start", async () => {
    const { ref } = await engine.create(spec());
    for (let i = 0; i < 5; i++) {
      const giveUp = new AbortController();
      const request = { argv: ["/bin/sh", "-c", "read x && sleep 1000"], stdin: true };
      const spawning = engine.spawn(ref, request, NOBODY_LISTENS, giveUp.signal);
      setTimeout(() => giveUp.abort(), i * 15);
      const spawned = await spawning.catch(() => undefined);
      spawned?.close();
    }
    await eventually(async () => {
      const search = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[r]ead x'";
      return (await run(engine, ref, ["sh", "-c", search])).stdout.toString() === "0\n";
    }, POLL);
    await engine.remove(ref);
  });

  test("block writers while the service is away, and let them continue when it is back", async () => {
    const left = path.join(directory, "left");
    const first = new DockerEngine({ instance, logger: silent, pipesDir: left });
    const { ref } = await first.create(spec());
    const argv = ["/bin/sh", "-c", "read x; head -c 1000000 /dev/zero; echo $? >/tmp/wrote; sleep 1000"];
    const spawned = await first.spawn(ref, { argv, stdin: true }, NOBODY_LISTENS);
    await first.close();
    expect(await spawned.writeStdin(Buffer.from("\n")).catch((error: Error) => error.name)).toBe(
      "BerthError",
    );
    const second = new DockerEngine({ instance, logger: silent, pipesDir: left });
    mkdirSync(path.join(left, "berth-of-nobody"));
    expect((await second.list()).map((sandbox) => sandbox.ref)).toContain(ref);
    await second.recover([]);
    await eventually(
      async () => (await run(second, ref, ["cat", "/tmp/wrote"])).stdout.toString() === "0\n",
      POLL,
    );
    expect(readdirSync(left)).not.toContain("berth-of-nobody");
    expect(await piped(second, ref)).toBe(true);
    await second.remove(ref);
    await second.close();
    expect(existsSync(left)).toBe(false);
  });

  test("are found again although the operator has renamed their container", async () => {
    const left = path.join(directory, "renamed");
    const first = new DockerEngine({ instance, logger: silent, pipesDir: left });
    const { ref } = await first.create(spec());
    await first.close();
    await docker.getContainer(ref).rename({ name: newInstance() });
    const second = new DockerEngine({ instance, logger: silent, pipesDir: left });
    await second.list();
    expect(await piped(second, ref)).toBe(true);
    await second.remove(ref);
    await second.close();
    expect(existsSync(left)).toBe(false);
  });
});

describe("pipes that fail are retried", () => {
  const { engine, pipesDir, warnings } = withWarnings("failing");
  const unmade = withWarnings("unmade");
  const unstocked = withWarnings("unstocked");

  test("by a container whose directory was away for a while", async () => {
    const { ref } = await engine.create(spec());
    expect(await piped(engine, ref)).toBe(true);
    const [name = ""] = namesIn(pipesDir);
    renameSync(path.join(pipesDir, name), path.join(directory, "away"));
    expect(await piped(engine, ref)).toBe(false);
    expect(engine.figures().sandboxesWithoutPipes).toBe(1);
    const [warning] = warnings;
    expect(warning).toMatchObject({ containerId: ref, retryMs: 1000, err: { code: "ENOENT" } });
    renameSync(path.join(directory, "away"), path.join(pipesDir, name));
    expect(await pipedSoon(engine, ref)).toBe(true);
    expect(engine.figures().sandboxesWithoutPipes).toBe(0);
    await engine.remove(ref);
  });

  test("after the service had no descriptor for a while", async () => {
    const { ref } = await engine.create(spec());
    const { over } = await withoutDescriptors(700);
    for (let i = 0; i < 5; i++) await run(engine, ref, ["/bin/sh", "-c", "exit 0"]).catch(() => {});
    await over;
    expect(await pipedSoon(engine, ref)).toBe(true);
    expect(engine.figures().sandboxesWithoutPipes).toBe(0);
    await engine.remove(ref);
  });

  test("after none could be made at first", async () => {
    const { ref } = await unstocked.engine.create(spec());
    const stock = path.join(unstocked.pipesDir, "stock");
    renameSync(stock, path.join(directory, "unstocked-away"));
    expect(await piped(unstocked.engine, ref)).toBe(false);
    renameSync(path.join(directory, "unstocked-away"), stock);
    expect(unstocked.engine.figures().sandboxesWithoutPipes).toBe(1);
    expect(unstocked.warnings.length).toBeGreaterThan(0);
    expect(await pipedSoon(unstocked.engine, ref)).toBe(true);
    expect(unstocked.engine.figures().sandboxesWithoutPipes).toBe(0);
    await unstocked.engine.remove(ref);
  });

  test("by new containers once a directory can be made", async () => {
    writeFileSync(unmade.pipesDir, "");
    const first = await unmade.engine.create(spec());
    expect(await piped(unmade.engine, first.ref)).toBe(false);
    expect(unmade.warnings).toMatchObject([{ err: { code: "ENOTDIR" }, retryMs: 1000 }]);
    rmSync(unmade.pipesDir);
    // The first one never gets any.
    expect(unmade.engine.figures().sandboxesWithoutPipes).toBe(1);
    await sleep(1_000);
    const { ref } = await unmade.engine.create(spec());
    expect(await piped(unmade.engine, ref)).toBe(true);
    expect(unmade.engine.figures().sandboxesWithoutPipes).toBe(1);
    await unmade.engine.remove(ref);
    await unmade.engine.remove(first.ref);
    expect(unmade.engine.figures().sandboxesWithoutPipes).toBe(0);
  });
});

/** An engine with pipes that records its warnings. */
function withWarnings(name: string) {
  const pipesDir = path.join(directory, name);
  const warnings: unknown[] = [];
  const logger = { ...silent, warn: (fields: object) => warnings.push(fields) };
  return { ...useEngine({ pipesDir, logger }), pipesDir, warnings };
}

test("pipes belong to the process's user if a container's IDs are not the host's", async () => {
  const remapped = await OwnDocker.start(BUSYBOX_IMAGE, {
    liveRestore: false,
    subIds: "daemon:100000:65536",
  });
  const pipesDir = path.join(directory, "remapped");
  const engine = new DockerEngine({ ...own, host: remapped.host, pipesDir });
  try {
    const { ref } = await engine.create(spec({ image: BUSYBOX_IMAGE }));
    expect(await ownersOfPipes(engine, ref, "", pipesDir)).toEqual([100_000]);
    expect(await ownersOfPipes(engine, ref, "65534", pipesDir)).toEqual([165_534]);
    // A service that finds the container does not know what the container reported when it was created.
    const next = new DockerEngine({ ...own, host: remapped.host, pipesDir });
    await next.list();
    expect(await ownersOfPipes(next, ref, "1000", pipesDir)).toEqual([101_000]);
    await next.close();
    await engine.remove(ref);
  } finally {
    await engine.close();
    await remapped.stop();
  }
});

describe("without pipes, output comes through Docker's streams", () => {
  test("a daemon that does not see the service's files", async () => {
    const host = path.join(directory, "unseen");
    mkdirSync(host);
    const program = path.join(import.meta.dirname, "pipes-unseen.ts");
    // A file system that is only mounted for the program.
    const script = 'mount -t tmpfs tmpfs "$1" && exec "$2" "$3" "$1" "$4"';
    const args = [
      "--mount",
      "sh",
      "-c",
      script,
      "sh",
      host,
      process.execPath,
      program,
      JSON.stringify(spec()),
    ];
    const { stdout } = await promisify(execFile)("unshare", args);
    expect(stdout).toMatch(/^pipe:/);
  });

  test("a directory that cannot be made", async () => {
    const file = path.join(directory, "file");
    writeFileSync(file, "");
    const engine = new DockerEngine({ instance: unmade.instance, logger: silent, pipesDir: `${file}/below` });
    const { ref } = await engine.create(spec());
    expect(await piped(engine, ref)).toBe(false);
    await engine.remove(ref);
    await engine.close();
  });

  test("an image whose shell does not open them", async () => {
    const { engine } = pipeless;
    const { ref } = await engine.create(spec());
    // As with a daemon that shows the directory but not the pipes in it.
    const [name = ""] = namesIn(pipeless.pipesDir);
    rmSync(path.join(pipeless.pipesDir, name), { recursive: true });
    expect(await piped(engine, ref)).toBe(false);
    await engine.remove(ref);
  });

  test("a sandbox with its own mount at their path", async () => {
    const { engine } = covered;
    const mounts = [
      { kind: "host" as const, hostPath: covered.host, target: "/run", readOnly: false, giveToUser: false },
    ];
    const { ref } = await engine.create(spec({ mounts }));
    expect(await piped(engine, ref)).toBe(false);
    expect(readdirSync(covered.host)).toEqual([]);
    await engine.remove(ref);
  });

  const unmade = useEngine();
  const pipeless = withDirectory("pipeless");
  const covered = withDirectory("covered");
});

function withDirectory(name: string) {
  const host = path.join(directory, `${name}-host`);
  mkdirSync(host);
  const pipesDir = path.join(directory, name);
  return { host, pipesDir, ...useEngine({ pipesDir, allowedHostPaths: [host] }) };
}

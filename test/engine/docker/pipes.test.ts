import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import type { Engine, OutputSink } from "../../../src/core/ports/engine.ts";
import { PIPES_TARGET } from "../../../src/engine/docker/container-pipes.ts";
import { DockerEngine } from "../../../src/engine/docker/engine.ts";
import { eventually } from "../../support/eventually.ts";
import { run, silent, spec, useEngine } from "./support.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const POLL = { timeoutMs: 20_000 };
const NOBODY_LISTENS: OutputSink = { data() {}, end() {} };
const WHERE = ["/bin/sh", "-c", "readlink /proc/self/fd/1"];

/** Whether a shell's output comes through a pipe of Berth's own. */
async function piped(engine: Engine, ref: string): Promise<boolean> {
  return (await run(engine, ref, WHERE)).stdout.toString().startsWith(PIPES_TARGET);
}

describe("pipes between a container and the service", () => {
  const pipesDir = path.join(directory, "shared");
  const { engine, instance } = useEngine({ pipesDir });

  test("carry what a shell writes, and are gone with it and its container", async () => {
    const { ref } = await engine.create(spec());
    expect(await piped(engine, ref)).toBe(true);
    const [name = ""] = readdirSync(pipesDir).filter((entry) => entry !== "stock");
    await eventually(() => readdirSync(path.join(pipesDir, name)).length === 0, POLL);
    await engine.remove(ref);
    expect(readdirSync(pipesDir)).toEqual(["stock"]);
  });

  test("cannot be replaced from inside, nor found by who is not root there", async () => {
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
    const [name = ""] = readdirSync(pipesDir).filter((entry) => entry !== "stock");
    const before = readdirSync(path.join(pipesDir, name), { withFileTypes: true });
    expect(before.length).toBe(3);
    expect(before.every((entry) => entry.isFIFO())).toBe(true);
    expect((await run(engine, ref, ["ls", PIPES_TARGET], { user: "nobody" })).exitCode).not.toBe(0);
    held.closeStdin();
    expect(await held.wait()).not.toBe(-1);
    await engine.remove(ref);
  });

  test("are not waited at by a start that was given up", async () => {
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

  test("keep who writes while the service is away, and let it go on when that is back", async () => {
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
    await eventually(
      async () => (await run(second, ref, ["cat", "/tmp/wrote"])).stdout.toString() === "0\n",
      POLL,
    );
    expect(readdirSync(left)).not.toContain("berth-of-nobody");
    expect(await piped(second, ref)).toBe(true);
    await second.remove(ref);
    await second.close();
    expect(readdirSync(left)).toEqual([]);
  });
});

describe("where there can be no pipes, output comes through Docker's streams", () => {
  test("a daemon that does not see the service's files", async () => {
    const host = path.join(directory, "unseen");
    mkdirSync(host);
    const program = path.join(import.meta.dirname, "pipes-unseen.ts");
    // A file system that is mounted for the program alone.
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
    // As with a daemon that shows the directory, and not the pipes in it.
    const [name = ""] = readdirSync(pipeless.pipesDir).filter((entry) => entry !== "stock");
    rmSync(path.join(pipeless.pipesDir, name), { recursive: true });
    expect(await piped(engine, ref)).toBe(false);
    await engine.remove(ref);
  });

  test("a sandbox that has a mount of its own there", async () => {
    const { engine } = covered;
    const mounts = [{ hostPath: covered.host, target: "/run", readOnly: false, giveToUser: false }];
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

import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import type { OutputStream } from "../../../src/core/ports/engine.ts";
import { docker } from "../../support/docker.ts";
import { failure, run, sh, spec, useEngine } from "./support.ts";

const { engine } = useEngine();
let ref = "";

beforeAll(async () => {
  ref = (await engine.create(spec({ env: { PLACE: "outer", KEPT: "yes" } }))).ref;
});

describe("output", () => {
  test("both streams arrive apart and byte for byte", async () => {
    const outcome = await run(engine, ref, [
      "sh",
      "-c",
      "printf 'a\\000\\377b\\r\\n'; printf 'e\\001\\n' >&2",
    ]);
    expect(outcome).toEqual({
      exitCode: 0,
      stdout: Buffer.from("a\0\xffb\r\n", "latin1"),
      stderr: Buffer.from("e\x01\n"),
      broken: undefined,
    });
  });

  test("100 MB arrive unchanged on each stream", async () => {
    const hashes = { stdout: createHash("sha256"), stderr: createHash("sha256") };
    const bytes = { stdout: 0, stderr: 0 };
    const ended = Promise.withResolvers<Error | undefined>();
    const program = `
import sys, random, hashlib
source = random.Random(7)
block = source.randbytes(1 << 20)
out, err = hashlib.sha256(), hashlib.sha256()
for i in range(100):
    block = block[4099:] + block[:4099]
    sys.stdout.buffer.write(block); out.update(block)
    sys.stderr.buffer.write(block[::-1]); err.update(block[::-1])
sys.stdout.flush()
open("/tmp/hashes", "w").write(out.hexdigest() + " " + err.hexdigest())
`;
    const spawned = await engine.spawn(
      ref,
      { argv: ["python3", "-c", program], stdin: false },
      {
        data(stream: OutputStream, chunk: Buffer) {
          hashes[stream].update(chunk);
          bytes[stream] += chunk.length;
        },
        end: ended.resolve,
      },
    );
    expect(await spawned.wait()).toBe(0);
    expect(await ended.promise).toBeUndefined();
    expect(bytes).toEqual({ stdout: 100 << 20, stderr: 100 << 20 });
    const expected = await sh(engine, ref, "cat /tmp/hashes");
    expect(`${hashes.stdout.digest("hex")} ${hashes.stderr.digest("hex")}`).toBe(expected);
  });

  test("a paused flow stops the writer and takes no memory; resumed, it brings the rest", async () => {
    let bytes = 0;
    const ended = Promise.withResolvers<Error | undefined>();
    const spawned = await engine.spawn(
      ref,
      { argv: ["sh", "-c", "head -c 200000000 /dev/zero; echo $? >/tmp/wrote"], stdin: false },
      {
        data(_, chunk) {
          bytes += chunk.length;
        },
        end: ended.resolve,
      },
    );
    spawned.pause();
    await sleep(300);
    const atPause = bytes;
    const memory = process.memoryUsage().rss;
    await sleep(700);
    expect(bytes).toBe(atPause);
    expect(process.memoryUsage().rss - memory).toBeLessThan(16 << 20);
    expect((await run(engine, ref, ["test", "-e", "/tmp/wrote"])).exitCode).toBe(1);
    spawned.resume();
    expect(await ended.promise).toBeUndefined();
    expect(await spawned.wait()).toBe(0);
    expect(bytes).toBe(200_000_000);
  });

  test("a terminal joins both streams and has the size asked for, then the one it is given", async () => {
    const output: string[] = [];
    const ended = Promise.withResolvers<unknown>();
    const spawned = await engine.spawn(
      ref,
      {
        argv: ["sh", "-c", "sleep 0.3; stty size; echo err >&2; read line; stty size; echo got $line"],
        stdin: true,
        terminal: { columns: 101, rows: 37 },
      },
      { data: (stream, chunk) => output.push(`${stream}:${chunk}`), end: ended.resolve },
    );
    await expect.poll(() => output.join("")).toContain("err");
    expect(output.join("")).toContain("37 101");
    await spawned.resize({ columns: 55, rows: 11 });
    await spawned.writeStdin(Buffer.from("words\n"));
    expect(await spawned.wait()).toBe(0);
    await ended.promise;
    expect(output.join("")).toMatch(/11 55\s+(stdout:)?got words/);
    expect(output.every((chunk) => chunk.startsWith("stdout:"))).toBe(true);
    await failure(spawned.resize({ columns: 10, rows: 10 }), "PROCESS_STATE");
  });

  test("closing drops the connection, says so once, and leaves the process", async () => {
    const ends: (Error | undefined)[] = [];
    const spawned = await engine.spawn(
      ref,
      { argv: ["sh", "-c", "sleep 0.5; echo later; echo done >/tmp/after-close"], stdin: false },
      { data() {}, end: (error) => ends.push(error) },
    );
    spawned.close();
    spawned.close();
    expect(await spawned.wait()).toBe(0);
    expect(ends).toMatchObject([{ reason: "CANCELED" }]);
    expect(await sh(engine, ref, "cat /tmp/after-close")).toBe("done\n");
  });
});

describe("stdin", () => {
  test("is passed on unchanged and ends where it is closed", async () => {
    const input = randomBytes(5_000_000);
    const { stdout, exitCode } = await run(engine, ref, ["cat"], { input });
    expect(exitCode).toBe(0);
    expect(stdout.equals(input)).toBe(true);
  });

  test("its end is not the end of the output", async () => {
    const { stdout } = await run(engine, ref, ["sh", "-c", "cat; sleep 0.3; echo after"], {
      input: Buffer.from("before\n"),
    });
    expect(stdout.toString()).toBe("before\nafter\n");
  });

  test("is empty where it was not asked for", async () => {
    expect((await run(engine, ref, ["cat"])).stdout.toString()).toBe("");
    const spawned = await engine.spawn(ref, { argv: ["sleep", "1"], stdin: false }, { data() {}, end() {} });
    await failure(spawned.writeStdin(Buffer.from("x")), "PROCESS_STATE");
    spawned.close();
  });

  test("a writer waits for a reader that does not read, and learns when it is gone", async () => {
    const spawned = await engine.spawn(ref, { argv: ["sleep", "1"], stdin: true }, { data() {}, end() {} });
    const write = async () => {
      for (let i = 0; i < 200; i++) await spawned.writeStdin(Buffer.alloc(1 << 20));
    };
    await failure(write(), "PROCESS_STATE");
    expect(await spawned.wait()).toBe(0);
  });
});

describe("the end", () => {
  test.each([
    ["exit 0", 0],
    ["exit 3", 3],
    ["exit 126", 126],
    ["exit 255", 255],
    ["kill -9 $$", 137],
    ["kill -15 $$", 143],
    ["exec sleep 0", 0],
  ])("of %s is %i", async (command, code) => {
    expect((await run(engine, ref, ["sh", "-c", command])).exitCode).toBe(code);
  });

  test("is known at once while a child holds the pipes", async () => {
    let ended = false;
    const spawned = await engine.spawn(
      ref,
      { argv: ["sh", "-c", "sleep 1.5 & exit 7"], stdin: false },
      {
        data() {},
        end() {
          ended = true;
        },
      },
    );
    const start = performance.now();
    expect(await spawned.wait()).toBe(7);
    expect(performance.now() - start).toBeLessThan(1000);
    expect(ended).toBe(false);
    await expect.poll(() => ended, { timeout: 5000 }).toBe(true);
  });

  test("is not missed by whoever asks late, more than once, or gives up meanwhile", async () => {
    const spawned = await engine.spawn(
      ref,
      { argv: ["sh", "-c", "sleep 0.3; exit 5"], stdin: false },
      { data() {}, end() {} },
    );
    const abort = new AbortController();
    const givenUp = spawned.wait(abort.signal);
    setTimeout(() => abort.abort(), 20);
    await failure(givenUp, "CANCELED");
    expect(await Promise.all([spawned.wait(), spawned.wait()])).toEqual([5, 5]);
    await sleep(100);
    expect(await spawned.wait()).toBe(5);
  });

  test("of many at once is right for each", async () => {
    const outcomes = await Promise.all(
      Array.from({ length: 40 }, (_, i) => run(engine, ref, ["sh", "-c", `echo out ${i}; exit ${i + 1}`])),
    );
    expect(outcomes.map(({ exitCode, stdout }) => [exitCode, stdout.toString()])).toEqual(
      outcomes.map((_, i) => [i + 1, `out ${i}\n`]),
    );
  });
});

describe("a start", () => {
  test("is in the root directory, with the request's environment over the sandbox's", async () => {
    const { stdout } = await run(engine, ref, ["sh", "-c", "pwd; echo $PLACE $KEPT"], {
      env: { PLACE: "inner" },
    });
    expect(stdout.toString()).toBe("/\ninner yes\n");
  });

  test("hands the arguments on as they are", async () => {
    const argv = ["printf", "%s|", "", " ", "$HOME", "'\"\\", "ü\n", "-n"];
    expect((await run(engine, ref, argv)).stdout.toString()).toBe(
      argv
        .slice(2)
        .map((arg) => `${arg}|`)
        .join(""),
    );
  });

  test("is as the user asked for", async () => {
    expect(await sh(engine, ref, "id -u", "nobody")).toBe("65534\n");
    expect(await sh(engine, ref, "id -u; id -g", "1234:5678")).toBe("1234\n5678\n");
  });

  test.each([["nosuchuser"], ["nobody:nosuchgroup"], ["-5"], ["99999999999"]])(
    "as %s is refused",
    async (user) => {
      const error = await failure(run(engine, ref, ["true"], { user }), "INVALID_ARGUMENT");
      expect(error.metadata).toEqual({ field: "user" });
    },
  );

  test.each([
    ["nosuchprogram", "127"],
    ["/nosuch/program", "127"],
    ["/etc", "126"],
    ["/etc/passwd", "126"],
  ])("of %s is refused as a shell's %s", async (program, exitCode) => {
    const error = await failure(run(engine, ref, [program]), "INVALID_ARGUMENT");
    expect(error.metadata).toEqual({ field: "argv", exit_code: exitCode });
    expect(error.message).toContain(program);
  });

  test("output that looks like Docker's own report stays output", async () => {
    const imitation =
      'OCI runtime exec failed: exec failed: exec: "x": executable file not found in $PATH: unknown\r\n';
    const outcome = await run(engine, ref, ["sh", "-c", 'printf %s "$1"; exit 126', "sh", imitation]);
    expect(outcome.exitCode).toBe(126);
    expect(outcome.stdout.toString()).toBe(imitation);
  });

  test("given up before it is one leaves no process", async () => {
    await failure(
      engine.spawn(
        ref,
        { argv: ["sleep", "99"], stdin: false },
        { data() {}, end() {} },
        AbortSignal.abort(),
      ),
      "CANCELED",
    );
    expect((await run(engine, ref, ["sh", "-c", "pgrep -f '^sleep 99$'"])).exitCode).toBe(1);
  });

  test("in a sandbox that is gone or has ended says so", async () => {
    const other = await engine.create(spec());
    await docker.getContainer(other.ref).kill();
    await failure(run(engine, other.ref, ["true"]), "SANDBOX_TERMINATED");
    await engine.remove(other.ref);
    await failure(run(engine, other.ref, ["true"]), "SANDBOX_TERMINATED");
  });
});

test("a process whose sandbox is removed ends for those who watch it", async () => {
  const other = await engine.create(spec());
  const ended = Promise.withResolvers<Error | undefined>();
  const spawned = await engine.spawn(
    other.ref,
    { argv: ["sleep", "99"], stdin: false },
    { data() {}, end: ended.resolve },
  );
  const waiting = spawned.wait().catch((error: unknown) => error);
  await engine.remove(other.ref);
  await ended.promise;
  expect([137, "SANDBOX_TERMINATED"]).toContain(
    await waiting.then((result) => (result as { reason?: string }).reason ?? result),
  );
});

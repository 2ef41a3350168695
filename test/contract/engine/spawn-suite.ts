import { randomBytes } from "node:crypto";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasReason } from "../../../src/base/errors.ts";
import { failure, run, sh } from "../../integration/engine/docker/support.ts";
import { eventually } from "../../support/eventually.ts";
import { keptBytes } from "../../support/kept-bytes.ts";
import { scaled } from "../../support/scale.ts";
import { type Subject, testUnless } from "./subject.ts";

const POLL = { timeout: 60_000 };
const GIVEN_UP = 1_500;
const NOBODY_LISTENS = { data() {}, end() {} };

/** Tests of {@link Engine.spawn} that every engine must pass. */
export function spawnSuite(subject: Subject): void {
  let ref = "";
  beforeAll(async () => {
    ref = (await subject.engine.create(subject.spec({ env: { PLACE: "outer", KEPT: "yes" } }))).ref;
  });
  afterAll(async () => {
    for (const sandbox of await subject.engine.list()) await subject.engine.remove(sandbox.ref);
  });

  describe("output", () => {
    test("both streams arrive separately and byte for byte", async () => {
      const script = "printf 'a\\000\\377b\\r\\n'; printf 'e\\001\\n' >&2";
      expect(await run(subject.engine, ref, ["sh", "-c", script])).toEqual({
        exitCode: 0,
        stdout: Buffer.from("a\0\xffb\r\n", "latin1"),
        stderr: Buffer.from("e\x01\n"),
        broken: undefined,
      });
    });

    test("large output arrives unchanged on each stream", async () => {
      const count = scaled(100, 10) << 20;
      const script = `head -c ${count} /dev/urandom | tee /tmp/out; head -c ${count} /dev/urandom | tee /tmp/err >&2`;
      const outcome = await run(subject.engine, ref, ["sh", "-c", script]);
      expect(outcome).toMatchObject({ exitCode: 0, broken: undefined });
      for (const [name, bytes] of [
        ["/tmp/out", outcome.stdout] as const,
        ["/tmp/err", outcome.stderr] as const,
      ]) {
        const file = await run(subject.engine, ref, ["cat", name]);
        expect(bytes.length, name).toBe(count);
        expect(file.stdout.equals(bytes), name).toBe(true);
      }
      await sh(subject.engine, ref, "rm /tmp/out /tmp/err");
    });

    test("streams can be reopened by their names", async () => {
      const script = "cat /dev/stdin; echo out >/dev/stdout; echo err >/proc/self/fd/2";
      const outcome = await run(subject.engine, ref, ["sh", "-c", script], { input: Buffer.from("in\n") });
      expect([`${outcome.stdout}`, `${outcome.stderr}`]).toEqual(["in\nout\n", "err\n"]);
    });

    test("stdin can be reopened by its name after EOF", async () => {
      const script = "cat; sleep 0.2; cat /dev/stdin; exec cat /proc/self/fd/3 3<&0 </dev/null";
      const outcome = await run(subject.engine, ref, ["sh", "-c", script], { input: Buffer.from("in\n") });
      expect([`${outcome.stdout}`, `${outcome.stderr}`, outcome.exitCode]).toEqual(["in\n", "", 0]);
    });

    test("a paused flow stops the writer, and a resumed one delivers the rest", async () => {
      let bytes = 0;
      const ended = Promise.withResolvers<Error | undefined>();
      const spawned = await subject.engine.spawn(
        ref,
        { argv: ["sh", "-c", "head -c 50000000 /dev/zero; echo >/tmp/wrote"], stdin: false },
        {
          data(_, chunk) {
            bytes += chunk.length;
          },
          end: ended.resolve,
        },
      );
      spawned.pause();
      await settled(() => bytes);
      expect(bytes).toBeLessThan(50_000_000);
      expect((await run(subject.engine, ref, ["test", "-e", "/tmp/wrote"])).exitCode).toBe(1);
      spawned.resume();
      expect(await ended.promise).toBeUndefined();
      expect(await spawned.wait()).toBe(0);
      expect(bytes).toBe(50_000_000);
    });

    test("a terminal joins both streams and has the requested size, and later the size it is given", async () => {
      const output: string[] = [];
      const ended = Promise.withResolvers<unknown>();
      const script =
        'stty size; test -t 0 && test -t 1 && echo err >&2; read line; stty size; echo got "$line"; exit 9';
      const spawned = await subject.engine.spawn(
        ref,
        { argv: ["sh", "-c", `read go; ${script}`], stdin: true, terminal: { columns: 101, rows: 37 } },
        { data: (stream, chunk) => output.push(`${stream}:${chunk}`), end: ended.resolve },
      );
      await spawned.writeStdin(Buffer.from("go\n"));
      await expect.poll(() => output.join(""), POLL).toContain("err");
      expect(output.join("")).toContain("37 101");
      await spawned.resize({ columns: 55, rows: 11 });
      await spawned.writeStdin(Buffer.from("words\n"));
      expect(await spawned.wait()).toBe(9);
      await ended.promise;
      expect(output.join("").replaceAll("stdout:", "")).toMatch(/11 55\s+got words/);
      expect(output.every((chunk) => chunk.startsWith("stdout:"))).toBe(true);
      await failure(spawned.resize({ columns: 10, rows: 10 }), "PROCESS_STATE");
    });

    test("closing detaches, ends the sink once, and leaves the process running", async () => {
      const ends: (Error | undefined)[] = [];
      const spawned = await subject.engine.spawn(
        ref,
        {
          argv: [
            "sh",
            "-c",
            "until [ -e /tmp/closed ]; do sleep 0.1; done; echo later; echo done >/tmp/after-close",
          ],
          stdin: false,
        },
        { data() {}, end: (error) => ends.push(error) },
      );
      spawned.close();
      spawned.close();
      await sh(subject.engine, ref, "echo >/tmp/closed");
      expect(await spawned.wait()).toBe(0);
      expect(ends).toMatchObject([{ reason: "CANCELED" }]);
      expect(await sh(subject.engine, ref, "cat /tmp/after-close")).toBe("done\n");
    });
  });

  describe("stdin", () => {
    test("is passed on unchanged and ends when it is closed", async () => {
      const input = randomBytes(5_000_000);
      const { stdout, exitCode } = await run(subject.engine, ref, ["cat"], { input });
      expect(exitCode).toBe(0);
      expect(stdout.equals(input)).toBe(true);
    });

    test("starts with the input given at the start", async () => {
      const chunks: Buffer[] = [];
      const ended = Promise.withResolvers<unknown>();
      const spawned = await subject.engine.spawn(
        ref,
        { argv: ["cat"], stdin: true, input: Buffer.from("first ") },
        { data: (_, chunk) => chunks.push(chunk), end: ended.resolve },
      );
      await spawned.writeStdin(Buffer.from("second"));
      spawned.closeStdin();
      await ended.promise;
      expect(Buffer.concat(chunks).toString()).toBe("first second");
    });

    test("its end is not the end of the output", async () => {
      const script = ["sh", "-c", "cat; sleep 0.3; echo after"];
      const { stdout } = await run(subject.engine, ref, script, { input: Buffer.from("before\n") });
      expect(stdout.toString()).toBe("before\nafter\n");
    });

    test("is empty if it was not requested", async () => {
      expect((await run(subject.engine, ref, ["cat"])).stdout.toString()).toBe("");
      const spawned = await subject.engine.spawn(ref, { argv: ["sleep", "1"], stdin: false }, NOBODY_LISTENS);
      await failure(spawned.writeStdin(Buffer.from("x")), "PROCESS_STATE");
      spawned.close();
    });

    testUnless("unreadStdin", subject, "that nobody reads does not cost the end of its process", async () => {
      for (let i = 0; i < scaled(20, 8); i++) {
        const ended = Promise.withResolvers<Error | undefined>();
        const argv = ["sh", "-c", `read -r line; exit ${i}`];
        const sink = { data() {}, end: ended.resolve };
        const spawned = await subject.engine.spawn(ref, { argv, stdin: true }, sink);
        const written = spawned.writeStdin(Buffer.alloc(2_000_000, "\n")).then(
          () => spawned.closeStdin(),
          () => {},
        );
        expect(await spawned.wait()).toBe(i);
        expect(await ended.promise).toBeUndefined();
        await written;
      }
    });

    test("a writer waits for a reader that does not read, and fails when the reader is gone", async () => {
      const spawned = await subject.engine.spawn(ref, { argv: ["sleep", "1"], stdin: true }, NOBODY_LISTENS);
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
      ["exit 127", 127],
      ["exit 255", 255],
      ["kill -9 $$", 137],
      ["kill -15 $$", 143],
      ["exec sleep 0", 0],
    ])("of %s is %i", async (command, code) => {
      expect((await run(subject.engine, ref, ["sh", "-c", command])).exitCode).toBe(code);
    });

    testUnless("heldOutput", subject, "is known while a child holds the pipes", async () => {
      const ended = Promise.withResolvers<unknown>();
      let silent = false;
      const spawned = await subject.engine.spawn(
        ref,
        { argv: ["sh", "-c", "(while ! test -e /tmp/let-go; do sleep 0.1; done) & exit 7"], stdin: false },
        {
          data() {},
          end(error) {
            silent = true;
            ended.resolve(error);
          },
        },
      );
      expect(await spawned.wait()).toBe(7);
      expect(silent).toBe(false);
      await sh(subject.engine, ref, "echo >/tmp/let-go");
      await ended.promise;
    });

    test("is reported also after the process was stopped and continued", async () => {
      const spawned = await subject.engine.spawn(
        ref,
        { argv: ["sh", "-c", "echo $$ >/tmp/stopped; kill -STOP $$; exit 4"], stdin: false },
        NOBODY_LISTENS,
      );
      const state = "cut -d' ' -f3 /proc/$(cat /tmp/stopped)/stat";
      await eventually(async () => (await sh(subject.engine, ref, state)) === "T\n");
      await sh(subject.engine, ref, "kill -CONT $(cat /tmp/stopped)");
      expect(await spawned.wait()).toBe(4);
    });

    test("is reported to callers that ask late or repeatedly, or after one gave up", async () => {
      const argv = ["sh", "-c", "until [ -e /tmp/given-up ]; do sleep 0.1; done; exit 5"];
      const spawned = await subject.engine.spawn(ref, { argv, stdin: false }, NOBODY_LISTENS);
      const abort = new AbortController();
      const givenUp = spawned.wait(abort.signal);
      setTimeout(() => abort.abort(), 20);
      await failure(givenUp, "CANCELED");
      await sh(subject.engine, ref, "echo >/tmp/given-up");
      expect(await Promise.all([spawned.wait(), spawned.wait()])).toEqual([5, 5]);
      await sleep(100);
      expect(await spawned.wait()).toBe(5);
    });

    test("takes no memory for callers that gave up", async () => {
      const spawned = await subject.engine.spawn(ref, { argv: ["cat"], stdin: true }, NOBODY_LISTENS);
      const giveUp = async (): Promise<void> => {
        for (let i = 0; i < GIVEN_UP; i++) {
          const abort = new AbortController();
          const waiting = spawned.wait(abort.signal).catch((error: unknown) => error);
          await setImmediate();
          abort.abort();
          expect(hasReason(await waiting, "CANCELED")).toBe(true);
        }
      };
      await giveUp();
      const before = await keptBytes();
      await giveUp();
      expect((await keptBytes()) - before).toBeLessThan(GIVEN_UP * 100);
      spawned.closeStdin();
      expect(await spawned.wait()).toBe(0);
    });

    test("is correct for each of many concurrent processes", async () => {
      const all = Array.from({ length: 20 }, (_, i) => i + 1);
      const outcomes = await Promise.all(
        all.map((i) => run(subject.engine, ref, ["sh", "-c", `echo out ${i}; exit ${i}`])),
      );
      expect(outcomes.map(({ exitCode, stdout }) => [exitCode, stdout.toString()])).toEqual(
        all.map((i) => [i, `out ${i}\n`]),
      );
    });
  });

  describe("a start", () => {
    test("is in the root directory, with the request's environment added to the sandbox's", async () => {
      const script = ["sh", "-c", "pwd; echo $PLACE $KEPT"];
      const { stdout } = await run(subject.engine, ref, script, { env: { PLACE: "inner" } });
      expect(stdout.toString()).toBe("/\ninner yes\n");
    });

    test("passes on arguments and environment unchanged", async () => {
      const argv = [
        "printf",
        "%s|",
        "",
        " ",
        "$HOME",
        "'\"\\",
        "ü\n",
        "-n",
        "a=b",
        "`id`",
        "x".repeat(100_000),
      ];
      const expected = argv.slice(2).map((arg) => `${arg}|`);
      expect((await run(subject.engine, ref, argv)).stdout.toString()).toBe(expected.join(""));
      const env = {
        EMPTY: "",
        QUOTED: 'it\'s "$x" `y`',
        LINES: "a\nb\n",
        "odd.name": "1",
        IFS: "/",
        LONG: "y".repeat(100_000),
      };
      const seen = (await run(subject.engine, ref, ["cat", "/proc/self/environ"], { env })).stdout.toString();
      for (const [name, value] of Object.entries(env)) expect(seen.split("\0")).toContain(`${name}=${value}`);
    });

    test("leads its own session, with only its streams open", async () => {
      const [pid, group, session] = (await sh(subject.engine, ref, "cut -d' ' -f1,5,6 /proc/$$/stat"))
        .trim()
        .split(" ");
      expect([group, session]).toEqual([pid, pid]);
      // The fourth is the descriptor of the listing itself.
      const listed = (await run(subject.engine, ref, ["ls", "/proc/self/fd"])).stdout.toString();
      expect(listed.trim().split("\n")).toEqual(["0", "1", "2", "3"]);
    });

    testUnless("users", subject, "is as the user asked for", async () => {
      expect(await sh(subject.engine, ref, "id -u", "nobody")).toBe("65534\n");
      expect(await sh(subject.engine, ref, "id -u; id -g", "1234:5678")).toBe("1234\n5678\n");
    });

    test.each(["nosuchuser", "nobody:nosuchgroup", "-5", "99999999999"])("as %s is refused", async (user) => {
      const error = await failure(run(subject.engine, ref, ["true"], { user }), "INVALID_ARGUMENT");
      expect(error.metadata).toEqual({ field: "user" });
    });

    test.each([
      ["nosuchprogram", "127"],
      ["/nosuch/program", "127"],
      ["/etc", "126"],
      ["/etc/passwd", "126"],
    ])("of %s is refused as a shell's %s", async (program, exitCode) => {
      const error = await failure(run(subject.engine, ref, [program]), "INVALID_ARGUMENT");
      expect(error.metadata).toEqual({ field: "argv", exit_code: exitCode });
      expect(error.message).toContain(program);
    });

    test("finds the program with the PATH that it is given", async () => {
      await sh(
        subject.engine,
        ref,
        "mkdir -p /tmp/own && printf '#!/bin/sh\\necho own\\n' >/tmp/own/prog && chmod 755 /tmp/own/prog",
      );
      await failure(run(subject.engine, ref, ["prog"]), "INVALID_ARGUMENT");
      expect((await run(subject.engine, ref, ["/tmp/own/prog"])).stdout.toString()).toBe("own\n");
    });

    test("aborted early leaves no process", async () => {
      const request = { argv: ["sleep", "98.7"], stdin: false };
      await failure(subject.engine.spawn(ref, request, NOBODY_LISTENS, AbortSignal.abort()), "CANCELED");
      const script =
        "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f 2>/dev/null; echo; done | grep -x 'sleep 98.7 '";
      expect((await run(subject.engine, ref, ["sh", "-c", script])).exitCode).toBe(1);
    });

    test("in a sandbox that is gone or has ended fails with that reason", async () => {
      const other = await subject.engine.create(subject.spec());
      await subject.signalMain(other.ref, "SIGKILL");
      await eventually(async () => (await stateOf(subject, other.ref)) === "ended");
      await failure(run(subject.engine, other.ref, ["true"]), "SANDBOX_TERMINATED");
      await subject.engine.remove(other.ref);
      await failure(run(subject.engine, other.ref, ["true"]), "SANDBOX_TERMINATED");
    });
  });

  test("a process whose sandbox is removed ends for its watchers", async () => {
    const other = await subject.engine.create(subject.spec());
    const ended = Promise.withResolvers<Error | undefined>();
    const spawned = await subject.engine.spawn(
      other.ref,
      { argv: ["sleep", "99"], stdin: false },
      { data() {}, end: ended.resolve },
    );
    const waiting = spawned.wait().catch((error: unknown) => error);
    await subject.engine.remove(other.ref);
    await ended.promise;
    const result = await waiting;
    expect([137, "SANDBOX_TERMINATED"]).toContain((result as { reason?: string }).reason ?? result);
  });
}

async function stateOf({ engine }: Subject, ref: string): Promise<string | undefined> {
  return (await engine.list()).find((sandbox) => sandbox.ref === ref)?.state;
}

/** Waits until a number has stopped changing for a while. */
async function settled(read: () => number): Promise<void> {
  for (let last = -1; last !== read(); await sleep(300)) last = read();
}

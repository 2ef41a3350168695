import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { DownloadItem } from "../../../src/files/read.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { type FileBench, IMAGES, refusal, useFileBench } from "./file-bench.ts";

const MIB = 1024 * 1024;

async function* inChunks(data: Uint8Array, size = 300_000): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < data.length; at += size) yield data.subarray(at, at + size);
}

/** Sends some content, does something, then waits forever. */
async function* stuckAfter(data: Uint8Array, then: () => unknown): AsyncGenerator<Uint8Array> {
  yield data;
  await then();
  await new Promise(() => {});
}

async function bytesOf(items: AsyncIterable<DownloadItem>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const item of items) if (item.type === "chunk") chunks.push(item.data);
  return Buffer.concat(chunks);
}

/** The temporary names in a directory during uploads. */
async function temporaries(bench: FileBench, path = "."): Promise<string[]> {
  const names = (await bench.sh(`ls -A '/workspace/${path}'`)).toString().split("\n");
  return names.filter((name) => name.startsWith(".berth"));
}

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);

  test.each([0, 1, 64, 5_000, 24 * 1024, 24 * 1024 + 1, 3 * MIB + 7, 20 * MIB + 7])(
    "%i bytes are uploaded and downloaded exactly",
    async (size) => {
      const data = randomBytes(size);
      const info = await bench().upload("file", inChunks(data), { sizeBytes: size });
      expect(info).toMatchObject({ kind: "REGULAR", sizeBytes: size });
      expect((await bytesOf(bench().download("file"))).equals(data)).toBe(true);
      const items = bench().download("file", { offset: size });
      expect((await items.next()).value).toEqual({ type: "header", info, offset: size });
      expect((await items.next()).done).toBe(true);
    },
  );

  test.each([MIB, 20 * MIB])("a download of %i bytes continues at the given offset", async (size) => {
    const data = randomBytes(size);
    await bench().upload("file", inChunks(data));
    const rest = await bytesOf(bench().download("file", { offset: 777_777 }));
    expect(rest.equals(data.subarray(777_777))).toBe(true);
  });

  test("content that imitates the mark of an upload's end is content", async () => {
    const mark = Buffer.from(`.berth-${"0".repeat(32)} 3`.padEnd(64));
    // Shorter content is not followed by a mark.
    const content = Buffer.concat([Buffer.alloc(30_000), mark, mark]);
    await bench().upload("file", inChunks(content));
    expect((await bench().read("file")).data).toEqual(content);
  });

  test("mode, parents and links are handled as for writes", async () => {
    const small = Buffer.from("x");
    expect(await refusal(bench().upload("a/b", inChunks(small)))).toMatchObject({ reason: "FILE_NOT_FOUND" });
    const made = await bench().upload("a/b", inChunks(small), { createParents: true, mode: 0o751 });
    expect(made.mode).toBe(0o751);
    expect((await bench().upload("a/b", inChunks(small))).mode).toBe(0o751);
    await bench().sh("ln -s a/b /workspace/link; ln -s a/new /workspace/to-new");
    await bench().upload("link", inChunks(Buffer.from("through")));
    await bench().upload("to-new", inChunks(Buffer.from("new")));
    expect((await bench().read("a/b")).data.toString()).toBe("through");
    expect((await bench().read("a/new")).data.toString()).toBe("new");
  });

  test.each([
    ["5 instead of 0", 5, 0],
    ["5 instead of 4", 5, 4],
    ["5 instead of 6", 5, 6],
    ["30,000 instead of 20,000", 30_000, 20_000],
    ["30,000 instead of 29,999", 30_000, 29_999],
    ["30,000 instead of 30,001", 30_000, 30_001],
    // The second of two chunks is too much, or missing.
    ["300,001 instead of 300,000", 300_001, 300_000],
    ["300,000 instead of 300,001", 300_000, 300_001],
  ])("with %s bytes, nothing is written", async (_, bytes, sizeBytes) => {
    await bench().write("announced", "old");
    const error = await refusal(bench().upload("announced", inChunks(Buffer.alloc(bytes)), { sizeBytes }));
    expect(error).toMatchObject({ reason: "INVALID_ARGUMENT", metadata: { field: "size_bytes" } });
    expect((await bench().read("announced")).data.toString()).toBe("old");
    expect(await temporaries(bench())).toEqual([]);
  });

  const part = Buffer.alloc(500_000, "new");

  describe.each([
    ["of unknown size ", undefined],
    ["", 600_000],
  ])("an upload %sthat fails leaves the old content and no temporary file,", (_, sizeBytes) => {
    const upload = (chunks: AsyncIterable<Uint8Array>, signal?: AbortSignal) =>
      bench().upload("victim", chunks, { sizeBytes, ...(signal && { signal }) });
    /** Waits until a temporary file has content. */
    const written = () =>
      eventually(
        async () => (await bench().sh("find /workspace -name '.berth*' -size +0 2>/dev/null")).length > 0,
      );

    test("when the caller cancels", async () => {
      await bench().write("victim", "old");
      const call = new AbortController();
      const chunks = stuckAfter(part, async () => {
        await written();
        call.abort(new BerthError("CANCELED", "the caller left"));
      });
      expect(await refusal(upload(chunks, call.signal))).toMatchObject({ reason: "CANCELED" });
      expect((await bench().read("victim")).data.toString()).toBe("old");
      expect(await temporaries(bench())).toEqual([]);
    });

    test("when the source breaks", async () => {
      await bench().write("victim", "old");
      async function* broken(): AsyncGenerator<Uint8Array> {
        yield part;
        throw new BerthError("INVALID_ARGUMENT", "no such chunk");
      }
      expect(await refusal(upload(broken()))).toMatchObject({ message: "no such chunk" });
      expect((await bench().read("victim")).data.toString()).toBe("old");
      expect(await temporaries(bench())).toEqual([]);
    });

    test.each(["cat", "sh", "cat and sh"])("when its %s is killed", async (which) => {
      await bench().write("victim", "old");
      const killed = [
        ...(which.includes("sh") ? ["*.bert[h]-*"] : []),
        ...(which.includes("cat") ? ["cat"] : []),
      ];
      const line = `for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in ${killed.join("|")}*) kill -9 \${p#/proc/};; esac; done`;
      const error = await refusal(
        upload(
          stuckAfter(part, async () => {
            await written();
            await bench().sh(line);
          }),
        ),
      );
      // If only `cat` is killed, its script ends in its own way.
      expect(error.reason).toBe(which === "cat" ? "UNSUPPORTED" : "TOO_MANY_OPERATIONS");
      expect((await bench().read("victim")).data.toString()).toBe("old");
      expect(await temporaries(bench())).toEqual([]);
    });
  });

  test("an upload for which no space is left leaves the old content and no temporary file", async () => {
    await bench().sh(
      "echo old >/dev/shm/victim; chmod 666 /dev/shm/victim; dd if=/dev/zero of=/dev/shm/fill bs=1M count=60 2>/dev/null",
    );
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) yield part;
    }
    expect(await refusal(bench().upload("/dev/shm/victim", endless()))).toMatchObject({
      reason: "NO_SPACE",
    });
    expect((await bench().sh("cat /dev/shm/victim; ls -A /dev/shm; rm -rf /dev/shm/*")).toString()).toBe(
      "old\nfill\nvictim\n",
    );
  });

  test("of concurrent writers, one file is there whole", async () => {
    const writers = Array.from({ length: 6 }, (_, index) => Buffer.alloc(2 * MIB + index, 65 + index));
    await Promise.all(writers.map((data) => bench().upload("contested", inChunks(data))));
    const { data } = await bench().read("contested");
    expect(writers.some((writer) => writer.equals(data))).toBe(true);
    expect(await temporaries(bench())).toEqual([]);
  });

  test("a reader that stops makes the file wait, and gets all of it in the end", async () => {
    await bench().sh("head -c 40000000 /dev/urandom >/workspace/large; chmod 666 /workspace/large");
    const wanted = (await bench().sh("sha256sum /workspace/large")).toString().slice(0, 64);
    const hash = createHash("sha256");
    let read = 0;
    for await (const item of bench().download("large")) {
      if (item.type !== "chunk") continue;
      if (read === 0) await sleep(500);
      hash.update(item.data);
      read += item.data.length;
      expect(item.data.length).toBeLessThanOrEqual(MIB);
    }
    expect(read).toBe(40_000_000);
    expect(hash.digest("hex")).toBe(wanted);
  });

  test("a download that is abandoned, or canceled while nobody reads, ends in the sandbox too", async () => {
    // The large one is read directly, the other through the script's pipe.
    await bench().sh(
      'for size in 50000000000 15000000; do f=/workspace/sparse$size; dd if=/dev/null of="$f" bs=1 seek=$size 2>/dev/null; chmod 666 "$f"; done',
    );
    const readers = async (): Promise<string> => {
      const line =
        "n=0; for p in /proc/[0-9]*; do case $(tr '\\0' ' ' 2>/dev/null <$p/cmdline) in *d[d]\\ bs=256k*) n=$((n+1));; esac; done; echo $n";
      return (await bench().sh(line)).toString().trim();
    };
    for (const [file, isPiped] of [
      ["sparse50000000000", false],
      ["sparse15000000", true],
    ] as const) {
      let chunks = 0;
      for await (const item of bench().download(file)) if (item.type === "chunk" && ++chunks === 3) break;
      // Killed processes may need a moment to end.
      await eventually(async () => (await readers()) === "0");

      const call = new AbortController();
      const items = bench().download(file, { signal: call.signal });
      await items.next();
      await items.next();
      if (isPiped) expect(await readers()).not.toBe("0");
      call.abort();
      await eventually(async () => (await readers()) === "0");
      await eventually(() => bench().activeOperations === 0);
      expect(await refusal(items)).toMatchObject({ reason: "CANCELED" });
    }
  });
});

describe("large files", () => {
  const bench = useFileBench({ ...IMAGES[0]?.spec });

  test("the shell that opened a large file serves the next operation", async () => {
    await bench().sh(
      "dd if=/dev/zero of=/workspace/file bs=1M count=20 2>/dev/null; chmod 666 /workspace/file",
    );
    const pids = async (): Promise<string[]> =>
      (await bench().sh("cd /proc; echo [0-9]*")).toString().trim().split(" ");
    await bench().stat("file");
    let shells = await pids();
    // Processes that inspect them, or that are starting, are soon gone.
    for (let looks = 0; looks < 5; looks++) {
      const found = await pids();
      shells = shells.filter((pid) => found.includes(pid));
    }
    expect(shells.length).toBeGreaterThan(1);
    for (let downloads = 0; downloads < 3; downloads++) {
      expect(await bytesOf(bench().download("file"))).toHaveLength(20 * MIB);
      await bench().stat("file");
    }
    expect(await pids()).toEqual(expect.arrayContaining(shells));
  });

  test("little of a large file passes through a pipe", async () => {
    const large = randomBytes(64 * MIB);
    await bench().upload("file", inChunks(large, MIB));
    // Replaces the tool by one that counts what it copies and ignores signals.
    const counting = '#!/bin/sh\\ntrap "" TERM\\nexec /bin/tee /tmp/passed\\n';
    await bench().sh(`printf '${counting}' >/usr/local/bin/dd; chmod +x /usr/local/bin/dd`);
    expect((await bytesOf(bench().download("file"))).equals(large)).toBe(true);
    // One process that looks repeatedly, because the daemon starts each at the cost of a tenth of a second.
    const look = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c tee";
    const left = `i=0; while ${look} >/dev/null && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done; ${look} || :`;
    expect((await bench().sh(left)).toString()).toBe("0\n");
    // If the file was read before the tool started, nothing has passed through it.
    const passed = async () => Number((await bench().sh("cat /tmp/passed 2>/dev/null | wc -c")).toString());
    expect(await passed()).toBeLessThan(8 * MIB);
    // The tool does count: a small file passes through it.
    await bench().write("small", "a few bytes");
    expect((await bytesOf(bench().download("small"))).toString()).toBe("a few bytes");
    expect(await passed()).toBe(11);
  });
});

describe("with a command timeout of one second", () => {
  const clock = new ManualClock();
  const bench = useFileBench({ ...IMAGES[0]?.spec, commandTimeoutMs: 1_000 }, clock);

  test("a watch may be idle for longer", async () => {
    await bench().makeDirectory("watched");
    const call = new AbortController();
    const items = bench().watch("watched", { intervalMs: 3_000, signal: call.signal });
    expect((await items.next()).value).toMatchObject({ type: "started" });
    // Now it rests.
    const next = items.next();
    await clock.advance(2_000);
    await bench().write("watched/file", "x");
    expect((await next).value).toMatchObject({ type: "CREATED" });
    call.abort();
    expect(await refusal(items)).toMatchObject({ reason: "CANCELED" });
  });

  test("an upload that stalls ends, one that continues does not", async () => {
    await bench().write("victim", "old");
    const stuck = new AbortController();
    const refused = refusal(
      bench().upload(
        "victim",
        stuckAfter(Buffer.from("new"), () => stuck.abort()),
      ),
    );
    await eventually(() => stuck.signal.aborted);
    await clock.advance(1_000);
    expect(await refused).toMatchObject({ reason: "DEADLINE_EXCEEDED" });
    expect((await bench().read("victim")).data.toString()).toBe("old");
    expect(await temporaries(bench())).toEqual([]);
    async function* slow(): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(30_000);
      for (const letter of "new") {
        await clock.advance(600);
        yield Buffer.from(letter);
      }
    }
    await bench().upload("victim", slow());
    expect((await bench().read("victim")).data.subarray(30_000).toString()).toBe("new");
  });
});

import { describe, expect, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import type { WatchItem } from "../../../src/files/watch.ts";
import { eventually } from "../../support/eventually.ts";
import { type FileBench, IMAGES, refusal, useFileBench } from "./file-bench.ts";

/** Follows a watch in the background. */
class Follower implements AsyncDisposable {
  readonly items: WatchItem[] = [];
  error: unknown;
  readonly #call = new AbortController();
  readonly #done: Promise<void>;

  constructor(bench: FileBench, path: string, more: { recursive?: boolean; intervalMs?: number } = {}) {
    this.#done = this.#follow(bench.watch(path, { ...more, signal: this.#call.signal }));
  }

  async #follow(items: AsyncIterable<WatchItem>): Promise<void> {
    try {
      for await (const item of items) this.items.push(item);
    } catch (error) {
      this.error = error;
    }
  }

  get changes(): string[] {
    return this.items.flatMap((item) => (item.type === "started" ? [] : `${item.type} ${item.path}`));
  }

  async started(): Promise<void> {
    await eventually(() => this.items.length > 0, { describe: () => this.error });
  }

  async sees(...changes: string[]): Promise<void> {
    await eventually(() => changes.every((change) => this.changes.includes(change)), {
      describe: () => ({ wanted: changes, seen: this.changes, error: String(this.error) }),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#call.abort();
    await this.#done;
  }
}

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);

  test("created, changed and removed files are reported, with what is known of them", async () => {
    await bench().sh("mkdir -m 777 /workspace/w; cd /workspace/w; : >old; : >doomed; mkdir sub");
    await using watch = new Follower(bench(), "w");
    await watch.started();
    expect(watch.items).toEqual([{ type: "started", entryCount: 3 }]);

    await bench().sh(
      // Moved there whole: a scan may see a file between its creation and its first byte.
      "cd /workspace/w; printf new >../new; mv ../new new; printf x >>old; rm doomed; : >sub/unseen; ln -s new link",
    );
    await watch.sees("CREATED new", "MODIFIED old", "REMOVED doomed", "CREATED link");
    // Like a slow write, of which a scan sees the temporary file.
    const temporary = new TemporaryNames(bench().instance).next();
    await bench().sh(`cd /workspace/w; : >${temporary}; chmod 600 old; mv new renamed`);
    await watch.sees("REMOVED new", "CREATED renamed");
    await eventually(() => watch.changes.filter((change) => change === "MODIFIED old").length === 2);
    expect(watch.changes).not.toContain(`CREATED ${temporary}`);
    expect(watch.changes.filter((change) => change.includes("sub"))).toEqual([]);

    const details = new Map(
      watch.items.flatMap((item) =>
        item.type === "started" ? [] : [[`${item.type} ${item.path}`, item] as const],
      ),
    );
    expect(details.get("CREATED new")?.info).toMatchObject({ kind: "REGULAR", sizeBytes: 3 });
    expect(details.get("CREATED link")?.info).toMatchObject({ kind: "SYMLINK", linkTarget: "new" });
    expect(details.get("MODIFIED old")?.info).toMatchObject({ mode: 0o600 });
    expect(details.get("REMOVED doomed")?.info).toBeUndefined();
  });

  test("a watch takes memory for what it knows until its end, and is refused if there is none", async () => {
    await bench().sh("mkdir /workspace/many; cd /workspace/many; seq 1000 | xargs touch");
    const { memory, sandbox } = bench();
    const { owner } = sandbox;
    {
      await using watch = new Follower(bench(), "many");
      await watch.started();
      await eventually(() => memory.of(owner) > 50_000 && memory.of(owner) < 200_000);
    }
    expect(memory.of(owner)).toBe(0);
    const call = new AbortController();
    const rest = memory.open(owner, call.signal);
    while (rest.take(10_000));
    await using refused = new Follower(bench(), "many");
    await eventually(() => refused.error !== undefined || refused.items.length > 0);
    call.abort();
    expect(refused.error).toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
  });

  test("subdirectories are watched on request, without following links", async () => {
    await bench().sh(
      "mkdir -p /workspace/r/a/b /elsewhere; ln -s /elsewhere /workspace/r/link; chmod -R 777 /workspace/r /elsewhere",
    );
    await using watch = new Follower(bench(), "r", { recursive: true });
    await watch.started();
    expect(watch.items[0]).toMatchObject({ entryCount: 3 });
    await bench().sh(
      ': >/elsewhere/x; mkdir /workspace/r/a/b/c; : >/workspace/r/a/b/c/deep; : >"/workspace/r/a/new\nline"',
    );
    await watch.sees("CREATED a/b/c", "CREATED a/b/c/deep", "CREATED a/new\nline");
    await bench().sh("rm -rf /workspace/r/a/b");
    await watch.sees("REMOVED a/b", "REMOVED a/b/c", "REMOVED a/b/c/deep");
    expect(watch.changes.filter((change) => change.includes("x"))).toEqual([]);
  });

  test("it ends when the directory is removed, or replaced by another", async () => {
    for (const act of [
      "rm -rf /workspace/gone",
      "mv /workspace/gone /workspace/away; mkdir /workspace/gone",
      "rm -rf /workspace/gone; : >/workspace/gone",
    ]) {
      await bench().sh("rm -rf /workspace/gone /workspace/away; mkdir /workspace/gone");
      await using watch = new Follower(bench(), "gone");
      await watch.started();
      await bench().sh(act);
      await eventually(() => watch.error !== undefined);
      expect(watch.error).toMatchObject({ reason: "FILE_NOT_FOUND" });
    }
  });

  test("it keeps the sandbox in use while it lasts, and releases it when the caller leaves", async () => {
    await bench().makeDirectory("held");
    {
      await using watch = new Follower(bench(), "held", { intervalMs: 3_600_000 });
      await watch.started();
      expect(bench().activeOperations).toBe(1);
    }
    await eventually(() => bench().activeOperations === 0);
  });

  test("a path that is not a directory is refused", async () => {
    const signal = new AbortController().signal;
    expect(await refusal(bench().watch("missing", { signal }))).toMatchObject({ reason: "FILE_NOT_FOUND" });
    expect(await refusal(bench().watch("/etc/passwd", { signal }))).toMatchObject({ reason: "FILE_KIND" });
  });
});

describe("more entries than can be watched", () => {
  const bench = useFileBench(IMAGES[0]?.spec ?? {});

  test("are refused", async () => {
    // In memory, where making so many files is quick.
    const directory = "/dev/shm/many";
    await bench().sh(`mkdir ${directory}; cd ${directory}; seq 100001 | xargs touch`);
    const signal = new AbortController().signal;
    expect(await refusal(bench().watch(directory, { signal }))).toMatchObject({ reason: "UNSUPPORTED" });
    await bench().sh(`rm ${directory}/1`);
    await using watch = new Follower(bench(), directory);
    await watch.started();
    expect(watch.items).toEqual([{ type: "started", entryCount: 100_000 }]);
  });
});

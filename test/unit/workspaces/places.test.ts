import { describe, expect, test } from "vitest";
import type { EngineVolumes, OpenVolume } from "../../../src/engine/port.ts";
import { Places } from "../../../src/workspaces/volumes/places.ts";

const SIGNAL = new AbortController().signal;

/** Volumes that track which of their places are open. */
class CountedVolumes {
  readonly open = new Set<string>();
  opened = 0;
  /** Opening a volume waits for this. */
  ready: Promise<void> = Promise.resolve();

  get volumes(): EngineVolumes {
    const open = async (name: string, signal?: AbortSignal): Promise<OpenVolume> => {
      const id = `${name} ${this.opened++}`;
      const aborted = new Promise<never>((_, reject) =>
        signal?.addEventListener("abort", () => reject(new Error("aborted"))),
      );
      await Promise.race([this.ready, aborted]);
      this.open.add(id);
      return {
        path: id,
        spawn: () => Promise.reject(new Error("nothing runs here")),
        close: async () => void this.open.delete(id),
      };
    };
    return { open } as Partial<EngineVolumes> as EngineVolumes;
  }
}

function newPlaces(): { places: Places; counted: CountedVolumes } {
  const counted = new CountedVolumes();
  return { places: new Places(counted.volumes), counted };
}

describe("places of volumes", () => {
  test("are shared by work on the same volume only", async () => {
    const { places, counted } = newPlaces();
    const held = await Promise.all(["a", "a", "b"].map((name) => places.hold(name, SIGNAL)));
    expect(held.map(({ volume }) => volume.path)).toEqual(["a 0", "a 0", "b 1"]);
    for (const { release } of held) release();
    // They are kept open for a while.
    expect((await places.hold("a", SIGNAL)).volume.path).toBe("a 0");
    expect(counted.opened).toBe(2);
  });

  test("accept nothing more once they are spent, and end with their last user", async () => {
    const { places, counted } = newPlaces();
    const [first, second] = [await places.hold("a", SIGNAL), await places.hold("a", SIGNAL)];
    first.spend();
    const next = await places.hold("a", SIGNAL);
    expect(next.volume.path).toBe("a 1");
    first.release();
    first.release();
    expect([...counted.open]).toEqual(["a 0", "a 1"]);
    second.release();
    await places.endIdle("b");
    expect([...counted.open]).toEqual(["a 1"]);
    next.release();
  });

  test("in which work fails accept nothing more: they may be gone", async () => {
    const { places, counted } = newPlaces();
    const failing = places.use("a", () => Promise.reject(new Error("gone")), SIGNAL);
    await expect(failing).rejects.toThrow("gone");
    expect(await places.use("a", async ({ path }) => path, SIGNAL)).toBe("a 1");
    expect([...counted.open]).toEqual(["a 1"]);
  });

  test("end at once when their volume is removed, even in use; idle ones also when a caller needs the volume exclusively", async () => {
    const { places, counted } = newPlaces();
    const held = await places.hold("a", SIGNAL);
    await places.endIdle("a");
    expect([...counted.open]).toEqual(["a 0"]);
    await places.end("a");
    expect([...counted.open]).toEqual([]);
    held.release();
    (await places.hold("a", SIGNAL)).release();
    await places.endIdle("a");
    expect([...counted.open]).toEqual([]);
  });

  test("that nobody waits for any more are abandoned, and those that fail are retried", async () => {
    const { places, counted } = newPlaces();
    const { promise, reject } = Promise.withResolvers<void>();
    counted.ready = promise;
    const abort = new AbortController();
    const waiting = places.hold("a", abort.signal);
    abort.abort(new Error("left"));
    await expect(waiting).rejects.toThrow("The call was canceled");
    const failing = places.hold("b", SIGNAL);
    reject(new Error("no room"));
    await expect(failing).rejects.toThrow("no room");
    counted.ready = Promise.resolve();
    expect((await places.hold("b", SIGNAL)).volume.path).toBe("b 2");
    expect([...counted.open]).toEqual(["b 2"]);
  });
});

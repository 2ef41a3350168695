import { afterAll, beforeEach, describe, expect, test } from "vitest";
import type { BerthError } from "../../../../src/base/errors.ts";
import type { PullProgress } from "../../../../src/engine/port.ts";
import { containersOf, docker } from "../../../support/docker.ts";
import { TEST_IMAGE } from "../../../support/images.ts";
import { TestRegistry } from "./registry.ts";
import { failure, spec, useEngine } from "./support.ts";

const { engine, instance } = useEngine();
/** Gives up on what never comes, and so perhaps on what a busy machine is late with. */
const { engine: impatient } = useEngine({ timeouts: { registryMs: 2_000, pullStallMs: 1_500 } });
let registry: TestRegistry;
let image = "";
let count = 0;
const pulled: string[] = [];

beforeEach(async () => {
  registry = new TestRegistry();
  image = `${await registry.listen()}/berth-test/image:${++count}`;
  pulled.push(image);
  return () => registry[Symbol.asyncDispose]();
});

afterAll(async () => {
  for (const name of pulled)
    await docker
      .getImage(name)
      .remove({ force: true })
      .catch(() => {});
});

describe("a present image", () => {
  test("is not pulled", async () => {
    const progress: PullProgress[] = [];
    await engine.ensureImage(TEST_IMAGE, { onProgress: (step) => progress.push(step) });
    expect(progress).toEqual([]);
  });
});

describe("a missing image", () => {
  test("is pulled, with progress that ends at the total", async () => {
    registry.behaviour = "slow";
    const progress: PullProgress[] = [];
    await engine.ensureImage(image, { onProgress: (step) => progress.push(step) });
    expect(progress.length).toBeGreaterThan(3);
    const last = progress.at(-1);
    expect(last).toMatchObject({ layersDone: 1, layersTotal: 1 });
    expect(last?.totalBytes).toBeGreaterThan(4 << 20);
    expect(last?.currentBytes).toBe(last?.totalBytes);
    for (const [i, step] of progress.entries()) {
      expect(step.currentBytes).toBeGreaterThanOrEqual(progress[i - 1]?.currentBytes ?? 0);
    }
    expect((await docker.getImage(image).inspect()).Config.User).toBe("someone");
  });

  test("is pulled once for ten callers, and each gets the progress", async () => {
    registry.behaviour = "slow";
    const heard = await Promise.all(
      Array.from({ length: 10 }, async () => {
        let steps = 0;
        await engine.ensureImage(image, { onProgress: () => steps++ });
        return steps;
      }),
    );
    expect(registry.layerRequests).toBe(1);
    expect(Math.min(...heard)).toBeGreaterThan(3);
  });

  test("is still pulled while one caller remains", async () => {
    registry.behaviour = "slow";
    const leaver = new AbortController();
    const leaving = engine.ensureImage(image, { signal: leaver.signal });
    const staying = engine.ensureImage(image, {});
    setTimeout(() => leaver.abort(), 500);
    await failure(leaving, "CANCELED");
    await staying;
    expect(registry).toMatchObject({ layerRequests: 1, brokenOff: 0 });
  });

  test("is no longer pulled when all callers have left, and can be pulled again", async () => {
    registry.behaviour = "slow";
    const leaver = new AbortController();
    const leaving = [1, 2, 3].map(() => engine.ensureImage(image, { signal: leaver.signal }));
    await expect.poll(() => registry.layerRequests).toBe(1);
    leaver.abort();
    await Promise.all(leaving.map((promise) => failure(promise, "CANCELED")));
    await expect.poll(() => registry.brokenOff).toBe(1);
    await failure(engine.create(spec({ image })), "IMAGE_UNAVAILABLE");
    registry.behaviour = "serves";
    await engine.ensureImage(image, {});
  });
});

describe("what Docker would repeat for each container of an image", () => {
  test.each([
    ["a long label", { Labels: { long: "x".repeat(200 << 10) } }],
    ["a label that Berth does not read to its end", { Labels: { long: "x".repeat(3 << 20) } }],
    ["many volumes", { Volumes: Object.fromEntries(Array.from({ length: 257 }, (_, i) => [`/v${i}`, {}])) }],
  ])("is refused before one exists: %s", async (_, settings) => {
    await using other = new TestRegistry(settings);
    image = `${await other.listen()}/berth-test/image:${++count}`;
    pulled.push(image);
    await engine.ensureImage(image, {});
    const error = await failure(engine.create(spec({ image })), "INVALID_ARGUMENT");
    expect(error.message).toMatch(/too many settings.*256 labels/);
    expect(error.metadata).toEqual({ field: "spec.image" });
    expect(await containersOf(instance)).toEqual([]);
  });
});

test("a container is made of the image that was checked, whatever its name means by then", async () => {
  const { Id } = await docker.getImage(TEST_IMAGE).inspect();
  const { ref } = await engine.create(spec());
  expect((await docker.getContainer(ref).inspect()).Config.Image).toBe(Id);
});

describe("an unavailable image is IMAGE_UNAVAILABLE, with what to do:", () => {
  async function expectUnavailable(name: string, words: RegExp, by = engine): Promise<BerthError> {
    const error = await failure(by.ensureImage(name, {}), "IMAGE_UNAVAILABLE");
    expect(error.message).toMatch(words);
    expect(error.message).toContain(name);
    return error;
  }

  test("the registry does not have it", async () => {
    registry.behaviour = "unknown image";
    await expectUnavailable(image, /does not exist there, or needs a login.*docker pull/);
  });

  test("the registry says why at length", async () => {
    registry.behaviour = "talks";
    const error = await expectUnavailable(image, /answer is too long.*docker pull/);
    expect(error.cause).toMatchObject({ cause: { name: "LongAnswerError" } });
  });

  test("nobody listens at the registry's address", async () => {
    await registry[Symbol.asyncDispose]();
    await expectUnavailable(image, /cannot be reached.*docker load/);
  });

  test("the registry's name does not resolve", async () => {
    await expectUnavailable("registry.invalid/some/image:1", /cannot be reached/);
  });

  test("the registry does not answer", async () => {
    registry.behaviour = "silent";
    const error = await expectUnavailable(image, /cannot be reached/, impatient);
    // The daemon's own timeout, which is longer, has not ended it.
    expect(error.cause).toMatchObject({ cause: { name: "NoAnswerError" } });
  });

  test("the registry stops halfway, after which the daemon itself waits forever", async () => {
    registry.behaviour = "stalls";
    await expectUnavailable(image, /cannot be reached/, impatient);
  });

  test("and an invalid name is INVALID_ARGUMENT", async () => {
    await failure(engine.ensureImage("Not A Name", {}), "INVALID_ARGUMENT");
  });
});

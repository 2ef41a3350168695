import { expect, test } from "vitest";
import { untilAborted } from "../../../src/base/async.ts";
import type { SessionHost } from "../../../src/sessions/backend.ts";
import { eventually } from "../../support/eventually.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { FakeBackend, FakeType, SessionBench } from "./support.ts";

/** A type with a warm pool. */
class WarmType extends FakeType {
  readonly prestarted: FakeBackend[] = [];
  adopting: (signal: AbortSignal) => Promise<boolean> = async () => true;
  override readonly prestart = async () => {
    const backend = new FakeBackend(this, {} as SessionHost, {});
    this.prestarted.push(backend);
    return backend;
  };
  override readonly adopt = (_backend: unknown, _host: unknown, _config: unknown, signal: AbortSignal) =>
    this.adopting(signal);
}

/** A service with a warm pool that is full. */
async function filled() {
  const type = new WarmType("warm");
  const bench = await SessionBench.start();
  await bench.restart({ types: [type] });
  await eventually(() => bench.sandboxes.stats(OWNER).warmPools[0]?.ready === 1);
  return { type, bench };
}

test("a session adopts a backend of the warm pool", async () => {
  const { type, bench } = await filled();
  await bench.created("warm");
  expect([type.prestarted[0]?.cleanups, type.backends]).toEqual([[], []]);
});

test.each([
  ["does not fit", async () => false],
  ["fails to adapt", () => Promise.reject(new Error("on purpose"))],
  ["takes too long to adapt", () => untilAborted(new Promise<never>(() => {}), AbortSignal.timeout(1))],
])("a backend of the warm pool that %s is replaced", async (_, adopting) => {
  const { type, bench } = await filled();
  type.adopting = adopting;
  expect(await bench.create(["warm"])).toMatchObject([{ status: "CREATED" }]);
  expect(type.prestarted[0]?.cleanups).toEqual([false]);
  const [{ sandboxId } = expect.fail()] = bench.listed;
  expect(type.backends.map(({ host }) => host.sandbox.sandboxId)).toEqual([sandboxId]);
});

test("a create that is canceled while it adopts a backend leaves nothing", async () => {
  const { type, bench } = await filled();
  type.adopting = (signal) => untilAborted(new Promise<never>(() => {}), signal);
  const stop = new AbortController();
  const created = bench.create(["warm"], {}, stop.signal);
  await settled();
  stop.abort();
  await created.catch(() => {});
  expect(type.prestarted[0]?.cleanups[0]).toBe(false);
  expect([type.backends, bench.listed]).toEqual([[], []]);
});

import { expect, test } from "vitest";
import { type TenantQuota, TenantQuotas } from "../../../src/sandboxes/tenant-quotas.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const SMALL = { memoryBytes: 100, cpuMillis: 500, pidsLimit: 10, diskBytes: undefined };

function newQuotas(quota: TenantQuota) {
  const clock = new ManualClock();
  const current = { quota };
  return { clock, current, quotas: new TenantQuotas(clock, (owner) => (owner === "a" ? current.quota : {})) };
}

test.each([
  ["sandboxes", { sandboxes: 2 }, { limit: "2", used: "2", asked: "1" }],
  ["memory_bytes", { memoryBytes: 250 }, { limit: "250", used: "200", asked: "100" }],
  ["cpu_millis", { cpuMillis: 1000 }, { limit: "1000", used: "1000", asked: "500" }],
  ["pids", { pids: 29 }, { limit: "29", used: "20", asked: "10" }],
] as const)(
  "%s: the third sandbox is refused, takes nothing, and fits once another is gone",
  (name, quota, facts) => {
    const { quotas } = newQuotas(quota);
    const [one] = [quotas.reserveSandbox("a", SMALL), quotas.reserveSandbox("a", SMALL)];
    const before = quotas.usage("a");
    expect(() => quotas.reserveSandbox("a", SMALL)).toThrow(
      expect.objectContaining({ reason: "TENANT_QUOTA", metadata: { quota: name, ...facts } }),
    );
    expect(quotas.usage("a")).toEqual(before);
    quotas.reserveSandbox("b", SMALL);
    one.release();
    one.release();
    quotas.reserveSandbox("a", SMALL);
    expect(quotas.usage("a")).toEqual(before);
  },
);

test("commands are counted per tenant, and a retry after the end of one succeeds", () => {
  const { quotas } = newQuotas({ execs: 1 });
  const exec = quotas.reserveExec("a");
  expect(() => quotas.reserveExec("a")).toThrow(
    expect.objectContaining({ reason: "TENANT_QUOTA", retryAfterMs: expect.any(Number) }),
  );
  quotas.reserveExec("b").release();
  exec.release();
  quotas.reserveExec("a");
});

test("creates: a second's worth at once, then as fast as the bucket refills; retry_after is when the next fits", async () => {
  const { quotas, clock } = newQuotas({ createsPerSecond: 2 });
  const create = () => quotas.reserveSandbox("a", SMALL);
  const refused = expect.objectContaining({
    reason: "TENANT_QUOTA",
    retryAfterMs: 500,
    metadata: expect.objectContaining({ quota: "creates_per_second" }),
  });
  create();
  create();
  expect(create).toThrow(refused);
  await clock.advance(500);
  create();
  expect(create).toThrow(refused);
  // However long nothing is created, a burst is limited to a second's worth.
  await clock.advance(3_600_000);
  create();
  create();
  expect(create).toThrow(refused);
});

test("a create that another quota refuses does not use the rate", () => {
  const { quotas } = newQuotas({ sandboxes: 1, createsPerSecond: 2 });
  const one = quotas.reserveSandbox("a", SMALL);
  expect(() => quotas.reserveSandbox("a", SMALL)).toThrow(/sandboxes/);
  one.release();
  quotas.reserveSandbox("a", SMALL);
});

test("recovered sandboxes, commands and sessions count even beyond a quota, and a changed quota applies from the next reservation on", () => {
  const { quotas, current } = newQuotas({ sandboxes: 1, execs: 0, sessions: 1 });
  const places = [quotas.recoverSandbox("a", SMALL), quotas.recoverSandbox("a", SMALL)];
  quotas.recoverExec("a");
  for (const _ of [1, 2]) quotas.recoverSession("a");
  const ofTwo = { sandboxes: 2, memoryBytes: 200, cpuMillis: 1000, pids: 20 };
  expect(quotas.usage("a")).toEqual({ ...ofTwo, execs: 1, sessions: 2 });
  expect(() => quotas.reserveSession("a")).toThrow(/quota of sessions: 1, of which 2 in use/);
  places[0]?.release();
  expect(() => quotas.reserveSandbox("a", SMALL)).toThrow(/quota of sandboxes/);
  current.quota = { sandboxes: 2 };
  quotas.reserveSandbox("a", SMALL);
  quotas.reserveSession("b").release();
  const none = { sandboxes: 0, memoryBytes: 0, cpuMillis: 0, pids: 0, execs: 0, sessions: 0 };
  expect(quotas.usage("b")).toEqual(none);
});

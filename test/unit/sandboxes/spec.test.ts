import { describe, expect, test } from "vitest";
import type { EngineInfo } from "../../../src/engine/port.ts";
import { fitSpec, type RequestedSpec, resolveSpec, SANDBOX_DEFAULTS } from "../../../src/sandboxes/spec.ts";

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

const engine = (changes: Partial<EngineInfo> = {}): EngineInfo => ({
  version: "1",
  isolation: "CONTAINER",
  images: true,
  capabilities: {
    pause: true,
    memoryLimit: true,
    cpuLimit: true,
    pidsLimit: true,
    systemCallFilter: true,
    diskLimit: false,
    egress: false,
    egressDomains: false,
  },
  cpus: 4,
  memoryBytes: 8 * GIB,
  ...changes,
});

const resolve = (asked: RequestedSpec, on = engine()) => resolveSpec(asked, SANDBOX_DEFAULTS, on);

test("omitted fields get the source system's defaults", () => {
  expect(resolve({})).toEqual({
    image: "python:3.12-slim",
    env: { PYTHONUNBUFFERED: "1", TERM: "dumb" },
    secretEnv: {},
    workingDir: "/workspace",
    user: "",
    resources: { memoryBytes: 512 * MIB, cpuMillis: 1000, pidsLimit: 512, diskBytes: undefined },
    network: "NONE",
    egressDomains: [],
    mounts: [],
    labels: {},
    idleTimeoutMs: 3_600_000,
    maxLifetimeMs: undefined,
    commandTimeoutMs: 300_000,
    runtime: "",
  });
});

test("given fields stay, and override the added environment", () => {
  const env = { TERM: "xterm", MORE: "1" };
  expect(resolve({ image: "x", env, idleTimeoutMs: 5, cpuMillis: 2000 })).toMatchObject({
    image: "x",
    env: { TERM: "xterm", MORE: "1", PYTHONUNBUFFERED: "1" },
    idleTimeoutMs: 5,
    resources: { cpuMillis: 2000, memoryBytes: 512 * MIB },
  });
});

test("a small machine limits the defaults instead of refusing every create", () => {
  const small = engine({ cpus: 0.5, memoryBytes: 256 * MIB });
  expect(resolve({}, small).resources).toMatchObject({ cpuMillis: 500, memoryBytes: 256 * MIB });
});

describe("out of range", () => {
  test.each<[string, RequestedSpec, RequestedSpec]>([
    ["spec.resources.memory_bytes", { memoryBytes: 6 * MIB - 1 }, { memoryBytes: 6 * MIB }],
    ["spec.resources.memory_bytes", { memoryBytes: 8 * GIB + 1 }, { memoryBytes: 8 * GIB }],
    ["spec.resources.cpu_millis", { cpuMillis: 9 }, { cpuMillis: 10 }],
    ["spec.resources.cpu_millis", { cpuMillis: 4001 }, { cpuMillis: 4000 }],
    ["spec.resources.pids_limit", { pidsLimit: 15 }, { pidsLimit: 16 }],
    ["spec.resources.pids_limit", { pidsLimit: 32_769 }, { pidsLimit: 32_768 }],
  ])("%s: %o is refused, %o is not", (field, bad, good) => {
    expect(() => resolve(bad)).toThrow(
      expect.objectContaining({ reason: "INVALID_ARGUMENT", metadata: { field } }),
    );
    expect(resolve(good)).toBeDefined();
  });
});

test("only what the engine cannot do is refused", () => {
  for (const asked of [{ diskBytes: GIB }, { network: "EGRESS" }] as const) {
    expect(() => resolve(asked)).toThrow(expect.objectContaining({ reason: "UNSUPPORTED" }));
    const able = engine();
    const capabilities = { ...able.capabilities, diskLimit: true, egress: true };
    expect(resolve(asked, { ...able, capabilities })).toBeDefined();
  }
});

describe("a spec of Berth's own", () => {
  const wanted = { image: "desktop", memoryBytes: 2 * GIB, cpuMillis: 2000, pidsLimit: 1024 };

  test("is limited by the machine", () => {
    const small = engine({ cpus: 1, memoryBytes: GIB });
    expect(fitSpec(wanted, small)).toEqual({ ...wanted, memoryBytes: GIB, cpuMillis: 1000 });
    expect(fitSpec(wanted, engine())).toEqual(wanted);
  });

  test("has no image if the engine has none", () => {
    const { image: _, ...rest } = wanted;
    expect(fitSpec(wanted, engine({ images: false }))).toEqual(rest);
    expect(fitSpec({}, engine())).toEqual({});
  });
});

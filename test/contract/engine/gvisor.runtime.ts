import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect } from "vitest";
import type { EngineSandboxSpec } from "../../../src/engine/port.ts";
import { run, spec, useEngine } from "../../integration/engine/docker/support.ts";
import { docker } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { hardeningSuite, useSharedDirectory } from "./hardening-suite.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";

/** Limits also count the sandbox's own kernel. */
const ROOMY = { memoryBytes: 256 << 20, cpuMillis: 1000, pidsLimit: 256, diskBytes: undefined };

const shared = useSharedDirectory();
const pipesDir = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
afterAll(() => rmSync(pipesDir, { recursive: true, force: true }));
const options = { allowedRuntimes: { runsc: "USER_KERNEL" } } as const;
const { engine } = useEngine({ ...options, allowedHostPaths: [shared], pipesDir });
const { engine: stranger } = useEngine(options);

const subject: Subject = {
  ...{ engine, stranger, user: "nobody", isolation: "USER_KERNEL" },
  spec: (changes?: Partial<EngineSandboxSpec>) => spec({ runtime: "runsc", resources: ROOMY, ...changes }),
  signalMain: (ref, signal) => docker.getContainer(ref).kill({ signal }),
  exceptions: {
    oom: {
      reason: "the limit holds for the sandbox with its kernel, which ends as a whole",
      instead: async () => {
        const other = await engine.create(subject.spec());
        const { ref } = await engine.create(subject.spec());
        await run(engine, ref, ["python3", "-c", "bytearray(1 << 30)"]).catch(() => {});
        await eventually(async () => (await stateOf(ref)) === "ended");
        const ended = (await engine.list()).find((one) => one.ref === ref);
        expect(ended?.end).toMatchObject({ outOfMemory: true });
        expect((await run(engine, other.ref, ["true"])).exitCode).toBe(0);
      },
    },
    pids: {
      reason: "the limit holds for the threads of the sandbox's kernel, which ends when it can have no more",
      instead: async () => {
        const other = await engine.create(subject.spec());
        const { ref } = await engine.create(subject.spec());
        await run(engine, ref, ["sh", "-c", "for i in $(seq 600); do sleep 60 & done; wait"]).catch(() => {});
        await eventually(async () => (await stateOf(ref)) === "ended");
        expect((await run(engine, other.ref, ["true"])).exitCode).toBe(0);
      },
    },
    usage: {
      reason: "what is counted is the sandbox's kernel, its threads and its memory included",
      instead: async () => {
        const { ref } = await engine.create(subject.spec());
        const { memoryBytes, cpuNanos, pids } = await engine.usage(ref);
        expect(memoryBytes).toBeGreaterThan(1 << 20);
        expect(cpuNanos).toBeGreaterThan(0);
        expect(pids).toBeGreaterThan(2);
      },
    },
  },
};

async function stateOf(ref: string): Promise<string | undefined> {
  return (await engine.list()).find((one) => one.ref === ref)?.state;
}

/** CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID. */
const capabilities = [0, 1, 3, 5, 6, 7];

describe("gVisor, processes", () => spawnSuite(subject));
describe("gVisor, sandboxes", () => lifecycleSuite(subject));
describe("gVisor, hardening", () => hardeningSuite({ subject, shared, capabilities, ownKernel: true }));

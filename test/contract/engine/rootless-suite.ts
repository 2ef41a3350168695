import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { requireLimits } from "../../../src/engine/docker/info.ts";
import type { EngineSandboxSpec } from "../../../src/engine/port.ts";
import { failure, run, spec, useEngine } from "../../integration/engine/docker/support.ts";
import { startTestApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { docker } from "../../support/docker.ts";
import { runProgram } from "../../support/program.ts";
import { hardeningSuite, useSharedDirectory } from "./hardening-suite.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Exception, Subject } from "./subject.ts";
import { unreadStdin } from "./unread-stdin.ts";

const UNLIMITED = { memoryBytes: 0, cpuMillis: 0, pidsLimit: 0, diskBytes: undefined };
/** CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID. */
const capabilities = [0, 1, 3, 5, 6, 7];

/** How the rootless daemon that DOCKER_HOST names differs, in addition to its limits. */
export interface Rootless {
  /** Its name in titles and in `berth doctor`. */
  readonly name: "rootless Docker" | "rootless Podman";
  /** Whether the last output of a process that ends with unread stdin may be lost, which is then reported. */
  readonly losesOutput?: boolean;
  /** Variables that it sets in sandboxes. */
  readonly environment?: readonly string[];
  readonly open?: { readonly calls: readonly string[]; readonly reason: string };
}

/**
 * The contract for a rootless daemon and a service of the same user, on a machine without control groups for that user.
 */
export function rootlessSuite({ name, losesOutput, environment, open }: Rootless): void {
  const shared = useSharedDirectory();
  const pipesDir = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
  afterAll(() => rmSync(pipesDir, { recursive: true, force: true }));
  const { engine } = useEngine({ allowedHostPaths: [shared], pipesDir });
  const { engine: stranger } = useEngine();

  const withoutLimits = {
    reason: "its containers have no control groups",
    instead: async () => {
      for (const limit of ["memoryBytes", "cpuMillis", "pidsLimit"] as const) {
        const resources = { ...UNLIMITED, [limit]: spec().resources[limit] };
        expect((await failure(engine.create(spec({ resources })), "UNSUPPORTED")).message).toContain(
          "berth doctor",
        );
        expect(await engine.list()).toEqual([]);
        const { ref } = await engine.create(subject.spec());
        await failure(engine.setResources(ref, resources), "UNSUPPORTED");
        expect((await run(engine, ref, ["true"])).exitCode).toBe(0);
        await engine.remove(ref);
      }
    },
  };
  const withoutPause = {
    reason: withoutLimits.reason,
    instead: async () => {
      const { ref } = await engine.create(subject.spec());
      await expect(engine.pause(ref)).rejects.toMatchObject({ name: "BerthError" });
      expect((await run(engine, ref, ["true"])).exitCode).toBe(0);
    },
  };
  const groups: { readonly [E in Exception]?: typeof withoutLimits } = {
    ...{ memory: withoutLimits, pids: withoutLimits, pause: withoutPause },
    usage: {
      reason: withoutLimits.reason,
      instead: async () => {
        const { ref } = await engine.create(subject.spec());
        const used = await engine.usage(ref).catch((error: Error) => error);
        // Usage is not measured, so it must not be reported.
        if (!(used instanceof Error)) expect(used).toMatchObject({ memoryBytes: 0, cpuNanos: 0, pids: 0 });
      },
    },
  };
  const subject: Subject = {
    ...{ engine, stranger, user: "nobody", pidsLimit: false },
    spec: (changes?: Partial<EngineSandboxSpec>) => spec({ resources: UNLIMITED, ...changes }),
    signalMain: (ref, signal) => docker.getContainer(ref).kill({ signal }),
    exceptions: { ...groups, ...(losesOutput && { unreadStdin: unreadStdin(engine, () => subject.spec()) }) },
  };

  describe(`${name}, processes`, () => spawnSuite(subject));
  describe(`${name}, sandboxes`, () => lifecycleSuite(subject));
  test(`${name}, processes are not seen from outside: shells in the sandbox kill them`, async () => {
    const { ref } = await engine.create(subject.spec());
    expect(await engine.outside(ref)).toBeUndefined();
    await engine.remove(ref);
  });
  describe(`${name}, hardening`, () =>
    hardeningSuite({
      ...{ subject, shared, capabilities, mountsAreShut: false },
      ...(environment && { environment }),
      ...(open && { open }),
    }));

  describe(`${name}, a service`, () => {
    test("reports that it cannot limit anything, and creates no sandbox", async () => {
      const { capabilities: has } = await engine.info();
      expect(() => requireLimits(spec().resources, has)).toThrow("cannot limit memory");
      const service = await startTestApp({ engine: "docker" });
      try {
        const refused = await failureOf(service.client.createSandbox({}));
        expect(refused).toMatchObject({ code: "FAILED_PRECONDITION", reason: "UNSUPPORTED" });
        expect(refused.message).toContain("berth doctor");
        expect(await engine.list()).toEqual([]);
      } finally {
        await service.stop();
      }
    });

    test("berth doctor says what is missing, and what to do", async () => {
      const { stdout } = await runProgram([
        "doctor",
        "--json",
        "--engine",
        "docker",
        "--listen",
        "127.0.0.1:0",
      ]);
      const { findings } = JSON.parse(stdout.toString()) as { findings: Record<string, string>[] };
      const of = (subject: string) => findings.find((finding) => finding.subject === subject);
      expect(of("docker daemon")?.found).toContain(name);
      expect(of("limits")).toMatchObject({
        status: "missing",
        found: expect.stringContaining("cannot limit memory, cpu, pids"),
        fix: expect.stringContaining("unified_cgroup_hierarchy"),
      });
      expect(of("pause")?.status).toBe("limited");
    });
  });
}

import { describe, expect } from "vitest";
import { failure, spec } from "../../integration/engine/docker/support.ts";
import { openEngine, signalMain } from "../../integration/engine/kubernetes/support.ts";
import { hardeningSuite, useSharedDirectory } from "./hardening-suite.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";

const { engine } = await openEngine();
const { engine: stranger } = await openEngine();

const subject: Subject = {
  ...{ engine, stranger, spec, signalMain, user: "nobody", pidsLimit: false },
  // The first process belongs to the pod, and is in another container.
  idleProcesses: 1,
  processesEach: 2,
  exceptions: {
    pause: {
      reason: "Kubernetes cannot pause a pod",
      instead: async () => {
        const { ref } = await engine.create(spec());
        const error = await failure(engine.pause(ref), "UNSUPPORTED");
        expect(error.metadata).toEqual({ capability: "pause" });
        await engine.remove(ref);
        await failure(engine.pause(ref), "SANDBOX_TERMINATED");
        await failure(engine.usage(ref), "SANDBOX_TERMINATED");
      },
    },
    pids: {
      reason: "Kubernetes has one limit of processes for all pods of a node",
      instead: async () => {
        const { capabilities } = await engine.info();
        expect(capabilities.pidsLimit).toBe(false);
      },
    },
  },
};

const hardening = {
  // CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID.
  ...{ subject, capabilities: [0, 1, 3, 5, 6, 7] },
  shared: useSharedDirectory(),
  besides: {
    name: "pause",
    reason: "the pod's first process is the container runtime's, and no capability of its is in force",
  },
  open: {
    calls: ["io_uring_setup", "io_uring_enter", "io_uring_register", "socket vsock"],
    reason: "the profile is the container runtime's, and containerd before 1.7 lets these through",
  },
  noMounts: "nodes do not have the directories of the service's machine",
};
describe("kubernetes, hardening", () => hardeningSuite(hardening));
describe("kubernetes, processes", () => spawnSuite(subject));
describe("kubernetes, sandboxes", () => lifecycleSuite(subject));

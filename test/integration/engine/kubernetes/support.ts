import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll } from "vitest";
import { KubernetesEngine, type KubernetesEngineOptions } from "../../../../src/engine/kubernetes/engine.ts";
import type { EngineSandboxSpec } from "../../../../src/engine/port.ts";
import { berthKubeconfig, kubectl, NAMESPACE } from "../../../support/kubernetes.ts";
import { newInstance } from "../../../support/settings.ts";
import { spec as dockerSpec, silent } from "../docker/support.ts";

/** An engine of an instance of its own, whose pods are gone when the file's tests are through. */
export async function openEngine(options: Partial<KubernetesEngineOptions> = {}): Promise<{
  engine: KubernetesEngine;
  instance: string;
}> {
  const instance = newInstance();
  const engine = await KubernetesEngine.open({
    instance,
    logger: silent,
    kubeconfig: berthKubeconfig(),
    // The cluster's network enforces no policy.
    networkPolicy: "open",
    ...options,
  });
  afterAll(async () => {
    await engine.close();
    await kubectl([
      "delete",
      "pods",
      `--namespace=${NAMESPACE}`,
      `--selector=berth.dev/instance=${instance}`,
      "--wait",
    ]);
  });
  return { engine, instance };
}

/** {@link openEngine} before a file's tests. */
export function useEngine(options: Partial<KubernetesEngineOptions> = {}): {
  readonly engine: KubernetesEngine;
} {
  let opened: KubernetesEngine | undefined;
  beforeAll(async () => {
    ({ engine: opened } = await openEngine(options));
  });
  return {
    get engine() {
      if (opened === undefined) throw new Error("the engine is opened before the first test");
      return opened;
    },
  };
}

/** A spec, with room for the pod's own processes. */
export function spec(changes: Partial<EngineSandboxSpec> = {}): EngineSandboxSpec {
  return dockerSpec(changes);
}

/** The name of the pod behind a ref. */
export function podName(ref: string): string {
  return ref.split(".")[0] ?? "";
}

/** Sends a signal to a sandbox's main process, past the engine and Kubernetes: a pod's first process gets none from inside. */
export async function signalMain(ref: string, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  const path = "{.status.containerStatuses[0].containerID}";
  const id = await kubectl([
    "get",
    "pod",
    podName(ref),
    `--namespace=${NAMESPACE}`,
    `--output=jsonpath=${path}`,
  ]);
  const container = id.replace("containerd://", "");
  const pids = readdirSync("/proc").filter(
    (name) => /^\d+$/.test(name) && groupsOf(name).includes(container),
  );
  const main = pids.find((pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("while read -r x"));
  if (main === undefined) throw new Error(`the main process of ${ref} is not found`);
  process.kill(Number(main), signal);
}

function groupsOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cgroup`, "utf8");
  } catch {
    return "";
  }
}

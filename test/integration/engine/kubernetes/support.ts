import { afterAll } from "vitest";
import type { Api } from "../../../../src/engine/kubernetes/api.ts";
import { KubernetesEngine, type KubernetesEngineOptions } from "../../../../src/engine/kubernetes/engine.ts";
import { ExecSocket } from "../../../../src/engine/kubernetes/exec-socket.ts";
import { parseRef } from "../../../../src/engine/kubernetes/pod.ts";
import {
  berthKubeconfig,
  commandLine,
  kubectl,
  NAMESPACE,
  processesOfContainer,
} from "../../../support/kubernetes.ts";
import { newInstance } from "../../../support/settings.ts";
import { silent } from "../docker/support.ts";

/** An engine with its own instance, whose pods are removed after the file's tests. */
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

/** Sends a signal to a sandbox's main process, bypassing the engine and Kubernetes. */
export async function signalMain(ref: string, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  const path = "{.status.containerStatuses[0].containerID}";
  const pod = parseRef(ref).name;
  const id = await kubectl(["get", "pod", pod, `--namespace=${NAMESPACE}`, `--output=jsonpath=${path}`]);
  const pids = processesOfContainer(id.replace("containerd://", ""));
  const main = pids.find((pid) => commandLine(pid).includes("while read -r x"));
  if (main === undefined) throw new Error(`the main process of ${ref} is not found`);
  process.kill(Number(main), signal);
}

/** Runs a command as Kubernetes itself does. */
export async function rawExec(api: Api, pod: string): Promise<void> {
  const closed = Promise.withResolvers<unknown>();
  const streams = { stdin: false, tty: false };
  await ExecSocket.open(api, pod, ["true"], streams, { data() {}, close: closed.resolve });
  await closed.promise;
}

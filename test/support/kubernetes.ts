import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { isExiting } from "../../src/engine/outside/host-process.ts";
import { eventually } from "./eventually.ts";

const SCRIPT = fileURLToPath(new URL("../../scripts/kubernetes.sh", import.meta.url));

/** The namespace of deploy/kubernetes. */
export const NAMESPACE = "berth";

/** If a part is killed meanwhile, kubectl may wait forever. */
const KUBECTL_TIMEOUT_MS = 60_000;

/** The pod of a sandbox. */
export async function podOf(
  sandboxId: string,
): Promise<{ readonly name: string; readonly container: string }> {
  const { items } = JSON.parse(
    await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, "--output=json"]),
  ) as {
    items: {
      metadata: { name: string; annotations?: Record<string, string> };
      status: { containerStatuses?: { name: string; containerID: string }[] };
    }[];
  };
  const pod = items.find(({ metadata }) => metadata.annotations?.["berth.dev/sandbox-id"] === sandboxId);
  const main = pod?.status.containerStatuses?.find(({ name }) => name === "main");
  if (pod === undefined || main === undefined) throw new Error(`no pod of ${sandboxId} runs`);
  return { name: pod.metadata.name, container: main.containerID.replace("containerd://", "") };
}

/**
 * This machine's pids of a container's processes, because the cluster's node is this machine. Without those that have
 * ended or been killed.
 */
export function processesOfContainer(container: string): string[] {
  return readdirSync("/proc").filter((pid) => {
    try {
      if (!/^\d+$/.test(pid) || !readFileSync(`/proc/${pid}/cgroup`, "utf8").includes(container))
        return false;
      return !isExiting(Number(pid));
    } catch {
      return false;
    }
  });
}

/** Command line of a process. Empty if it has ended. */
export function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trimEnd();
  } catch {
    return "";
  }
}

/** Parts of the cluster that a test may kill. */
export type ClusterPart =
  | "apiserver"
  | "containerd"
  | "controller-manager"
  | "etcd"
  | "kubelet"
  | "scheduler";

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined)
    throw new Error(`${name} is not set: start these tests by npm run test:kubernetes`);
  return value;
}

/** The kubeconfig of the service account `berth`, with the rights of deploy/kubernetes/rbac.yaml. */
export function berthKubeconfig(): string {
  return variable("KUBECONFIG");
}

/** The kubeconfig of the cluster's administrator. */
export function adminKubeconfig(): string {
  return variable("BERTH_KUBERNETES_ADMIN");
}

/**
 * This machine's pid of a part's process. Undefined while it does not run. It restarts a second after its end, with
 * another pid.
 */
export function clusterPartPid(part: ClusterPart): number | undefined {
  const pid = readFileSync(path.join(variable("BERTH_KUBERNETES_STATE"), "pids", part), "utf8").trim();
  try {
    // The pid of an ended process may belong to another one, which no test may kill.
    const groups = readFileSync(`/proc/${pid}/cgroup`, "utf8");
    return groups.includes(":/berth-kubernetes/node\n") ? Number(pid) : undefined;
  } catch {
    return undefined;
  }
}

/** Kills a part of the cluster. Returns when it has restarted. */
export async function killClusterPart(part: ClusterPart): Promise<void> {
  const killed = clusterPartPid(part);
  if (killed === undefined) throw new Error(`${part} does not run`);
  process.kill(killed, "SIGKILL");
  await eventually(() => ![killed, undefined].includes(clusterPartPid(part)), { timeoutMs: 30_000 });
}

/** Kills a part of the cluster, and keeps it down until the end of the caller's scope. */
export function holdClusterPart(part: ClusterPart): Disposable {
  const killed = clusterPartPid(part);
  if (killed === undefined) throw new Error(`${part} does not run`);
  const hold = path.join(variable("BERTH_KUBERNETES_STATE"), "hold", part);
  writeFileSync(hold, "");
  process.kill(killed, "SIGKILL");
  return { [Symbol.dispose]: () => rmSync(hold) };
}

/** A port of a pod or a Service on this machine, through `kubectl port-forward`. */
export class ForwardedPort implements AsyncDisposable {
  /** `host:port` */
  readonly address: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, address: string) {
    this.#child = child;
    this.address = address;
  }

  /** @param target such as `service/NAME` */
  static async open(namespace: string, target: string, port: number): Promise<ForwardedPort> {
    const args = ["port-forward", `--namespace=${namespace}`, target, `:${port}`];
    const env = { ...process.env, KUBECONFIG: variable("BERTH_KUBERNETES_ADMIN") };
    const child = spawn(SCRIPT, ["kubectl", ...args], { env, stdio: ["ignore", "pipe", "inherit"] });
    for await (const line of createInterface(child.stdout)) {
      const address = /^Forwarding from (127\.0\.0\.1:\d+)/.exec(line)?.[1];
      if (address !== undefined) return new ForwardedPort(child, address);
    }
    throw new Error(`kubectl forwards no port of ${target}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exit = once(this.#child, "exit");
    if (this.#child.kill()) await exit;
  }
}

interface KubectlOptions {
  readonly as?: "admin" | "berth";
  readonly input?: string;
}

/** kubectl's stdout. Rejects with its error. */
export async function kubectl(args: readonly string[], options: KubectlOptions = {}): Promise<string> {
  return (await kubectlOutput(args, options)).stdout;
}

/** kubectl's stdout and stderr. Rejects with its error. */
export async function kubectlOutput(
  args: readonly string[],
  options: KubectlOptions = {},
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const kubeconfig = variable(options.as === "berth" ? "KUBECONFIG" : "BERTH_KUBERNETES_ADMIN");
  const child = spawn(SCRIPT, ["kubectl", `--kubeconfig=${kubeconfig}`, ...args], {
    stdio: "pipe",
    timeout: KUBECTL_TIMEOUT_MS,
    killSignal: "SIGKILL",
  });
  child.stdin.end(options.input ?? "");
  const [stdout, stderr, code] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    new Promise<number | null>((resolve) => child.on("close", resolve)),
  ]);
  if (code !== 0) throw new Error(`kubectl ${args.join(" ")} ended with ${code}: ${stderr}`);
  return { stdout, stderr };
}

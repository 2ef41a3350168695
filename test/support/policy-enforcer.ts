import { spawn } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { V1NetworkPolicy, V1Pod } from "@kubernetes/client-node";
import { kubectl } from "./kubernetes.ts";

/*
 * A minimal network plugin for the tests' cluster, which otherwise enforces no NetworkPolicy. It only supports what
 * Berth uses: pods selected by labels, no ingress, egress to address ranges with exceptions and to port ranges. Its
 * rules are in the network namespace of the cluster's node, never on this machine.
 */

const POLL_MS = 200;

/** Enforces the policies of a namespace until the end of the caller's scope. */
export class PolicyEnforcer {
  readonly #namespace: string;
  readonly #stop = new AbortController();
  readonly #chain: string;
  #applied = "";
  #running: Promise<void> = Promise.resolve();

  private constructor(namespace: string) {
    this.#namespace = namespace;
    this.#chain = `T${process.pid}`;
  }

  static async start(namespace: string): Promise<PolicyEnforcer> {
    const enforcer = new PolicyEnforcer(namespace);
    await enforcer.#apply();
    enforcer.#running = enforcer.#run();
    return enforcer;
  }

  /** Removes its rules. Rejects if something failed meanwhile. */
  async stop(): Promise<void> {
    this.#stop.abort();
    try {
      await this.#running;
    } finally {
      await this.#remove();
    }
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#apply();
      await sleep(POLL_MS, undefined, { signal: this.#stop.signal }).catch(() => {});
    }
  }

  async #apply(): Promise<void> {
    const get = ["get", "pods,networkpolicies", `--namespace=${this.#namespace}`, "--output=json"];
    const { items } = JSON.parse(await kubectl(get)) as { items: { kind: string }[] };
    const pods = items.filter(({ kind }) => kind === "Pod") as V1Pod[];
    const policies = items.filter(({ kind }) => kind === "NetworkPolicy") as V1NetworkPolicy[];
    const rules = rulesOf(this.#chain, pods, policies);
    if (rules === this.#applied) return;
    await inNode(["iptables-restore", "--noflush"], rules);
    if (this.#applied === "")
      for (const chain of ["FORWARD", "INPUT"])
        await inNode(["iptables", "-I", chain, "1", "-j", this.#chain]);
    this.#applied = rules;
  }

  async #remove(): Promise<void> {
    for (const chain of ["FORWARD", "INPUT"])
      await inNode(["iptables", "-D", chain, "-j", this.#chain]).catch(() => "");
    const listing = await inNode(["iptables", "-S"]);
    const own = [...listing.matchAll(/^-N (\S+)$/gm)].map(([, name = ""]) => name);
    for (const flag of ["-F", "-X"])
      for (const name of own.filter((one) => one === this.#chain || one.startsWith(`${this.#chain}-`)))
        await inNode(["iptables", flag, name]);
  }
}

/** Runs a program in the network of the cluster's node. Rejects with its error. */
export async function inNode(command: readonly string[], input = ""): Promise<string> {
  const child = spawn("nsenter", [`--net=/proc/${nodePid()}/ns/net`, "--", ...command], {
    stdio: "pipe",
    env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` },
  });
  child.stdin.on("error", () => {}).end(input);
  const [stdout, stderr, code] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    new Promise<number | null>((resolve) => child.on("close", resolve)),
  ]);
  if (code !== 0) throw new Error(`${command.join(" ")} ended with ${code}: ${stderr}`);
  return stdout;
}

/**
 * Adds an address to the cluster's node, with a program that accepts connections on a port, until the end of the
 * caller's scope.
 */
export async function serveInNode(address: string, port: number): Promise<AsyncDisposable> {
  await inNode(["ip", "addr", "add", `${address}/32`, "dev", "lo"]);
  const program = `require("node:net").createServer((socket) => socket.on("error", () => {}).end()).listen(${port}, "${address}", () => console.log("ready"))`;
  const child = spawn("nsenter", [`--net=/proc/${nodePid()}/ns/net`, "--", process.execPath, "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await new Promise((resolve, reject) => {
    child.stdout.once("data", resolve);
    child.once("exit", () => reject(new Error(`nothing serves ${address}`)));
  });
  return {
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await inNode(["ip", "addr", "del", `${address}/32`, "dev", "lo"]);
    },
  };
}

function nodePid(): string {
  const state = process.env.BERTH_KUBERNETES_STATE;
  if (state === undefined) throw new Error("BERTH_KUBERNETES_STATE is not set");
  const [pid = ""] = readFileSync(path.join(state, "node.pid"), "utf8").split(" ");
  if (readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync("/proc/self/ns/net"))
    throw new Error("the node has no network of its own");
  return pid;
}

/** The rules, in the format of iptables-restore. */
export function rulesOf(chain: string, pods: readonly V1Pod[], policies: readonly V1NetworkPolicy[]): string {
  const blocks: string[] = [];
  const chains = [chain];
  const lines = [`-A ${chain} -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN`];
  const isolated = pods.flatMap((pod) => {
    const address = pod.status?.podIP;
    const own = policies.filter(({ spec }) => selects(spec?.podSelector, pod.metadata?.labels ?? {}));
    return address === undefined || own.length === 0 ? [] : [{ address, own }];
  });
  // First the incoming traffic, because its sender may be allowed to send it.
  for (const { address, own } of isolated) {
    if (own.some(({ spec }) => (spec?.ingress ?? []).length > 0))
      throw new Error("ingress is not known here");
    lines.push(`-A ${chain} -d ${address} -j DROP`);
  }
  isolated.forEach(({ address, own }, at) => {
    const name = `${chain}-${at}`;
    chains.push(name);
    lines.push(`-A ${chain} -s ${address} -j ${name}`);
    const open = own.flatMap(({ spec }) => spec?.egress ?? []);
    for (const { to, ports } of open) {
      for (const { ipBlock, ...others } of to ?? [{ ipBlock: { cidr: "0.0.0.0/0" } }]) {
        if (ipBlock === undefined || Object.keys(others).length > 0)
          throw new Error("this peer is not known here");
        // The node's pods have no IPv6.
        if (ipBlock.cidr.includes(":")) continue;
        const block = `${chain}-${at}-${blocks.push(name)}`;
        chains.push(block);
        for (const range of ipBlock.except ?? []) lines.push(`-A ${block} -d ${range} -j RETURN`);
        const matches = ports?.map(
          ({ protocol = "TCP", port }) => `-p ${protocol.toLowerCase()} --dport ${port} `,
        );
        for (const match of matches ?? [""]) lines.push(`-A ${block} ${match}-j ACCEPT`);
        lines.push(`-A ${name} -d ${ipBlock.cidr} -j ${block}`);
      }
    }
    lines.push(`-A ${name} -j DROP`);
  });
  return ["*filter", ...chains.map((one) => `:${one} - [0:0]`), ...lines, "COMMIT", ""].join("\n");
}

function selects(
  selector: { matchLabels?: Record<string, string>; matchExpressions?: unknown[] } | undefined,
  labels: Readonly<Record<string, string>>,
): boolean {
  if ((selector?.matchExpressions ?? []).length > 0) throw new Error("expressions are not known here");
  return Object.entries(selector?.matchLabels ?? {}).every(([key, value]) => labels[key] === value);
}

import { execFile } from "node:child_process";
import { access, readFile, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { NetworkInspectInfo } from "dockerode";
import { untilAborted } from "../../base/async.ts";
import { BerthError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { NOT_PUBLIC_IPV4 } from "../../base/public-address.ts";
import type { Daemon } from "./daemon.ts";
import { answerTo } from "./errors.ts";

/** The bridge's interface on the host. The firewall rules match traffic by it. */
const EGRESS_BRIDGE = "berth0";

/** The Docker network for all sandboxes with EGRESS on a daemon, of every instance. */
const NETWORK = "berth-egress";

const NETWORK_OPTIONS = {
  "com.docker.network.bridge.name": EGRESS_BRIDGE,
  "com.docker.network.bridge.enable_icc": "false",
};

const IPTABLES_TIMEOUT_MS = 10_000;

/**
 * The network that reaches the public internet and nothing else: not the machine, not its other networks, not other
 * sandboxes. It is created on first use, and its firewall rules are checked on each use.
 */
export class Egress {
  readonly #daemon: Daemon;
  readonly #logger: Logger;
  #available = false;
  #ensuring: Promise<string> | undefined;

  constructor(daemon: Daemon, logger: Logger) {
    this.#daemon = daemon;
    this.#logger = logger;
  }

  /** Whether the service can install the rules: as root, on the daemon's machine. */
  async available(): Promise<boolean> {
    if (this.#available || this.#daemon.socketPath === undefined || process.getuid?.() !== 0)
      return this.#available;
    this.#available = await listRules().then(hasUserChain, () => false);
    return this.#available;
  }

  /** Creates the network and its rules if needed. Returns the network's name. */
  async ensure(signal?: AbortSignal): Promise<string> {
    this.#ensuring ??= this.#ensure().finally(() => {
      this.#ensuring = undefined;
    });
    return untilAborted(this.#ensuring, signal);
  }

  async #ensure(): Promise<string> {
    const network = (await this.#find()) ?? (await this.#create());
    const options = Object.entries(NETWORK_OPTIONS);
    if (network.EnableIPv6 || options.some(([key, value]) => network.Options?.[key] !== value)) {
      throw unsafe(`its network ${NETWORK} has other settings. Remove it with: docker network rm ${NETWORK}`);
    }
    // The bridge, and the rules for it, are in the daemon's network namespace, which may be another one.
    await access(`/sys/class/net/${EGRESS_BRIDGE}`).catch((error: unknown) => {
      throw unsafe("Docker's networks are not on the machine of the service", error);
    });
    await requireFilteredBridge();
    await disableIPv6();
    await this.#ensureRules();
    return NETWORK;
  }

  async #ensureRules(): Promise<void> {
    try {
      const repair = repairEgressRules(await listRules());
      if (repair !== undefined) {
        await iptables("iptables-restore", ["--noflush", "-w", "5"], repair);
        this.#logger.info({ bridge: EGRESS_BRIDGE }, "installed the firewall rules of sandboxes with egress");
      }
      const listing = await listRules();
      if (!hasUserChain(listing) || repairEgressRules(listing) !== undefined)
        throw new Error("the rules do not stay");
    } catch (error) {
      throw unsafe("its firewall rules cannot be installed", error);
    }
  }

  async #find(): Promise<NetworkInspectInfo | undefined> {
    try {
      return await this.#daemon.call("looking up a network", (docker) =>
        docker.getNetwork(NETWORK).inspect(),
      );
    } catch (error) {
      if (answerTo(error)?.statusCode === 404) return undefined;
      throw error;
    }
  }

  async #create(): Promise<NetworkInspectInfo> {
    try {
      await this.#daemon.call("creating a network", (docker, abortSignal) =>
        docker.createNetwork({
          Name: NETWORK,
          Driver: "bridge",
          EnableIPv6: false,
          CheckDuplicate: true,
          Options: NETWORK_OPTIONS,
          abortSignal,
        }),
      );
    } catch (error) {
      // Another service may have created it meanwhile.
      const found = await this.#find();
      if (found) return found;
      throw error;
    }
    const created = await this.#find();
    if (!created) throw unsafe(`its network ${NETWORK} was removed by somebody else`);
    return created;
  }
}

/**
 * The setting that makes traffic within a bridge, from one sandbox to another, pass the firewall. Docker sets it, but
 * any other program may reset it.
 */
const BRIDGE_FILTER = "/proc/sys/net/bridge/bridge-nf-call-iptables";

async function requireFilteredBridge(): Promise<void> {
  const value = await readFile(BRIDGE_FILTER, "utf8").catch(() => "");
  if (value.trim() === "1") return;
  throw unsafe(
    "the kernel does not filter traffic between sandboxes. Fix it with: modprobe br_netfilter; sysctl net.bridge.bridge-nf-call-iptables=1",
  );
}

/**
 * The kernel gives every interface an IPv6 address, through which sandboxes could reach the host despite the rules for
 * IPv4.
 */
async function disableIPv6(): Promise<void> {
  const file = `/proc/sys/net/ipv6/conf/${EGRESS_BRIDGE}/disable_ipv6`;
  try {
    if ((await readFile(file, "utf8")).trim() !== "1") await writeFile(file, "1");
  } catch (error) {
    // A kernel without IPv6 has no such file.
    if ((error as NodeJS.ErrnoException).code !== "ENOENT")
      throw unsafe(`IPv6 cannot be turned off for ${EGRESS_BRIDGE}`, error);
  }
}

function listRules(): Promise<string> {
  return iptables("iptables", ["-w", "5", "-S"]);
}

async function iptables(command: string, args: readonly string[], input = ""): Promise<string> {
  const running = promisify(execFile)(command, args, {
    timeout: IPTABLES_TIMEOUT_MS,
    maxBuffer: 64 << 20,
    env: { ...process.env, PATH: `${process.env.PATH ?? ""}:/usr/sbin:/sbin` },
  });
  // A command that ends without reading its input reports why through its exit code.
  running.child.stdin?.on("error", () => {}).end(input);
  return (await running).stdout;
}

function unsafe(problem: string, cause?: unknown): BerthError {
  return new BerthError("UNSUPPORTED", `This engine cannot give a sandbox a safe network: ${problem}.`, {
    metadata: { capability: "egress" },
    cause,
  });
}

const CHAIN = "BERTH-EGRESS";

/** Written as `iptables -S` prints it, so that rules can be compared as text. */
const REJECT = "-j REJECT --reject-with icmp-port-unreachable";

const CHAIN_RULES = NOT_PUBLIC_IPV4.map((range) => `-A ${CHAIN} -d ${range} ${REJECT}`);

/**
 * The rules that must come first in chains shared with others: for forwarded traffic, and for traffic to the machine
 * itself.
 */
const FIRST_RULES = [
  { chain: "DOCKER-USER", rule: `-i ${EGRESS_BRIDGE} -j ${CHAIN}` },
  { chain: "INPUT", rule: `-i ${EGRESS_BRIDGE} ${REJECT}` },
];

/** Whether forwarded traffic passes Docker's chain for user-defined rules. */
export function hasUserChain(listing: string): boolean {
  return listing.split("\n").includes("-A FORWARD -j DOCKER-USER");
}

/**
 * Compares the output of `iptables -S` with the rules that limit sandboxes to the public internet. Returns the input
 * for `iptables-restore --noflush` that repairs them in one step; undefined if they are correct.
 */
export function repairEgressRules(listing: string): string | undefined {
  const lines = listing.split("\n");
  const rulesOf = (chain: string) => lines.filter((line) => line.startsWith(`-A ${chain} `));
  const commands: string[] = [];
  if (rulesOf(CHAIN).join("\n") !== CHAIN_RULES.join("\n"))
    commands.push(`:${CHAIN} - [0:0]`, ...CHAIN_RULES);
  for (const { chain, rule } of FIRST_RULES) {
    const rules = rulesOf(chain);
    if (rules[0] === `-A ${chain} ${rule}`) continue;
    for (const line of rules) if (line === `-A ${chain} ${rule}`) commands.push(`-D ${chain} ${rule}`);
    commands.push(`-I ${chain} 1 ${rule}`);
  }
  return commands.length === 0 ? undefined : ["*filter", ...commands, "COMMIT", ""].join("\n");
}

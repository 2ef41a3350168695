import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import Dockerode from "dockerode";

const LABEL = "berth.bench.peers";
const READY_MS = 30_000;

/** Memory and processes of every sandbox. All of them may use all CPUs. */
export const LIMITS = { memoryBytes: 1024 ** 3, pids: 512 } as const;

/** A container that runs a daemon, on a network that only reaches this machine. */
export interface DaemonContainer {
  readonly id: string;
  /** `host:port` of the daemon. */
  readonly address: string;
  remove(): Promise<void>;
}

/** The containers and the network of one run. */
export class Containers {
  readonly docker = new Dockerode();
  readonly label: string;
  #network: Promise<Dockerode.Network> | undefined;

  constructor(label: string) {
    this.label = label;
  }

  get labels(): Record<string, string> {
    return { [LABEL]: this.label };
  }

  /** Creates and starts an idle container without a network. */
  async idle(image: string): Promise<Dockerode.Container> {
    const container = await this.docker.createContainer(
      this.#options(image, ["sleep", "infinity"], { NetworkMode: "none" }),
    );
    await container.start();
    return container;
  }

  /**
   * Starts a container whose command is a daemon that listens on `port`. Resolves when `ready` returns true.
   * @param binds in Docker's form: `HOST:CONTAINER:ro`.
   */
  async daemon(
    options: {
      readonly image: string;
      readonly command: readonly string[];
      readonly binds: readonly string[];
      readonly port: number;
      readonly ready: (address: string) => Promise<boolean>;
    },
    signal: AbortSignal,
  ): Promise<DaemonContainer> {
    this.#network ??= this.docker.createNetwork({
      Name: `berth-bench-peers-${this.label}`,
      Internal: true,
      Labels: this.labels,
    });
    const { id: network } = await this.#network;
    const container = await this.docker.createContainer(
      this.#options(options.image, options.command, { NetworkMode: network, Binds: [...options.binds] }),
    );
    await container.start();
    const { NetworkSettings } = await container.inspect();
    const [endpoint] = Object.values(NetworkSettings.Networks);
    const address = `${endpoint?.IPAddress}:${options.port}`;
    const tooLate = AbortSignal.any([signal, AbortSignal.timeout(READY_MS)]);
    while (!(await options.ready(address).catch(() => false))) {
      tooLate.throwIfAborted();
      await sleep(2);
    }
    return { id: container.id, address, remove: () => container.remove({ force: true }) };
  }

  #options(
    image: string,
    command: readonly string[],
    host: Dockerode.HostConfig,
  ): Dockerode.ContainerCreateOptions {
    return {
      Image: image,
      Cmd: [...command],
      Labels: this.labels,
      HostConfig: {
        Init: true,
        Memory: LIMITS.memoryBytes,
        PidsLimit: LIMITS.pids,
        LogConfig: { Type: "none", Config: {} },
        ...host,
      },
    };
  }

  /** The pids, on this machine, of a container's processes whose command line contains a word. */
  async pids(container: string, word = ""): Promise<number[]> {
    const { Processes } = await this.docker.getContainer(container).top({ ps_args: "-eo pid,args" });
    return ((Processes ?? []) as string[][])
      .filter(([, command]) => command?.includes(word))
      .map(([pid]) => Number(pid));
  }

  /** Removes every container of this run, and its network. */
  async removeAll(): Promise<void> {
    const filters = { label: [`${LABEL}=${this.label}`] };
    const all = await this.docker.listContainers({ all: true, filters });
    await Promise.all(all.map(({ Id }) => this.docker.getContainer(Id).remove({ force: true })));
    await (await this.#network)?.remove();
  }
}

/** Proportional memory of processes (PSS: shared pages divided by their users), in MiB. */
export function memoryMiB(pids: readonly number[]): number {
  const kib = pids.map((pid) => {
    try {
      return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1] ?? 0);
    } catch {
      // It has ended meanwhile.
      return 0;
    }
  });
  return kib.reduce((sum, each) => sum + each, 0) / 1024;
}

import { access, constants } from "node:fs/promises";
import path from "node:path";
import { type Finding, yesOrLimited } from "../../base/diagnosis.ts";
import { BerthError } from "../../base/errors.ts";
import { describeIsolation, type EngineInfo, type IsolationLevel } from "../port.ts";
import { Daemon, DEFAULT_SOCKET } from "./daemon.ts";
import { DockerEngine, type DockerEngineOptions } from "./engine.ts";
import { answerTo } from "./errors.ts";
import { podmanFacts } from "./podman.ts";

/** The fields of `docker info` used here, in addition to those of the engine's info. */
interface DaemonFacts {
  readonly Driver: string;
  readonly CgroupDriver: string;
  readonly CgroupVersion?: string;
  readonly Runtimes?: Readonly<Record<string, unknown>>;
  readonly SecurityOptions?: readonly string[] | null;
}

const CALL_TIMEOUT_MS = 10_000;

/**
 * Checks whether a service with these options could use the Docker daemon. `image` is the default image, `desktopImage`
 * that of desktops and browsers. Changes nothing, and ends within timeouts.
 */
export async function diagnoseDocker(
  options: DockerEngineOptions,
  image: string,
  desktopImage: string,
): Promise<Finding[]> {
  const engine = new DockerEngine({ ...options, timeouts: { callMs: CALL_TIMEOUT_MS } });
  const daemon = new Daemon({ host: options.host, callTimeoutMs: CALL_TIMEOUT_MS });
  const place = daemon.socketPath ?? options.host ?? process.env.DOCKER_HOST ?? "";
  try {
    const info = await engine.info();
    const facts = await daemon.call(
      "asking for its version",
      (docker): Promise<DaemonFacts> => docker.info(),
    );
    const isPodman = await daemon.isPodman();
    const isRootless = isPodman
      ? (await daemon.call("asking for its control groups", podmanFacts)).isRootless
      : (facts.SecurityOptions?.some((option) => option.includes("rootless")) ?? false);
    return [
      {
        subject: "docker daemon",
        status: "ok",
        found: `${isRootless ? "rootless " : ""}${isPodman ? "Podman" : "Docker"} ${info.version} at ${place}`,
      },
      { subject: "isolation", status: "ok", found: describeIsolation(info.isolation) },
      ...capabilities(info, facts, isRootless),
      ...diagnoseRuntimes(facts, options.allowedRuntimes ?? {}),
      storage(facts),
      await diagnoseImage(daemon, image),
      await diagnoseDesktopImage(daemon, desktopImage),
    ];
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    return [{ subject: "docker daemon", status: "missing", ...(await whyNoDaemon(error, place)) }];
  } finally {
    daemon.close();
    await engine.close();
  }
}

async function whyNoDaemon(error: BerthError, place: string): Promise<{ found: string; fix: string }> {
  const { code } = (error.cause ?? {}) as NodeJS.ErrnoException;
  if (code === "EACCES" || code === "EPERM") {
    return {
      found: `this user may not open ${place}`,
      fix: 'sudo usermod -aG docker "$USER"   # then log in again: members of this group are as good as root',
    };
  }
  if (code !== "ENOENT" && code !== "ECONNREFUSED") {
    return {
      found: `${error.message.replace(/\.$/, "")} (${place})`,
      fix: "See the daemon's log: journalctl -u docker",
    };
  }
  const found = `no Docker daemon answers at ${place}`;
  if (place !== DEFAULT_SOCKET) {
    return {
      found,
      fix: "Correct --docker-host or DOCKER_HOST, or start the daemon that should listen there",
    };
  }
  const install = (await isInstalled("dockerd"))
    ? ""
    : "sudo apt-get update && sudo apt-get install -y docker.io\n";
  const start = (await isDirectory("/run/systemd/system"))
    ? "sudo systemctl enable --now docker"
    : "sudo sh -c 'dockerd >/var/log/dockerd.log 2>&1 &'";
  return { found, fix: install + start };
}

function capabilities(info: EngineInfo, facts: DaemonFacts, isRootless: boolean): Finding[] {
  const { memoryLimit, cpuLimit, pidsLimit, pause, diskLimit, egress, egressDomains, systemCallFilter } =
    info.capabilities;
  const version = facts.CgroupVersion ?? "1";
  const delegate =
    "sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | " +
    "sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload   # then log in again";
  const kernel =
    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&cgroup_enable=memory swapaccount=1 /' /etc/default/grub && sudo update-grub && sudo reboot";
  const unified =
    "Without root there are no limits by cgroup v1. On a system with systemd: sudo sed -i " +
    "'s/^GRUB_CMDLINE_LINUX=\"/&systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && sudo update-grub && sudo reboot";
  const missingLimits = [
    ...(memoryLimit ? [] : ["memory"]),
    ...(cpuLimit ? [] : ["cpu"]),
    ...(pidsLimit ? [] : ["pids"]),
  ];
  const limits: Finding = {
    subject: "limits",
    ...(missingLimits.length === 0
      ? { status: "ok", found: `memory, cpu and processes, by cgroup v${version} (${facts.CgroupDriver})` }
      : {
          status: "missing",
          found: `cgroup v${version} (${facts.CgroupDriver}) cannot limit ${missingLimits.join(", ")}`,
          fix: isRootless ? (version === "1" ? unified : delegate) : kernel,
        }),
  };
  return [
    limits,
    yesOrLimited("pause", pause, "sandboxes can be paused", {
      found: "sandboxes cannot be paused: their containers have no control groups",
      fix: isRootless && version === "1" ? unified : delegate,
    }),
    yesOrLimited("disk limit", diskLimit, "disk_bytes can be limited", {
      found: "disk_bytes cannot be limited: that needs overlay2 on XFS with project quotas",
      fix: "Put Docker's data on a disk of its own (DEVICE is erased), with Docker stopped: mkfs.xfs DEVICE && mount -o pquota DEVICE /var/lib/docker",
    }),
    yesOrLimited("system calls", systemCallFilter, "filtered by the daemon's seccomp profile", {
      found:
        "not filtered: the daemon has no seccomp, or an unconfined profile, so that the whole kernel is in reach",
      fix: 'Remove "seccomp-profile": "unconfined" from /etc/docker/daemon.json, or use a kernel with CONFIG_SECCOMP_FILTER',
    }),
    yesOrLimited("network", egress, "sandboxes can have outgoing network", {
      found: "sandboxes get no network: a safe one needs root, iptables, and the daemon on this machine",
      fix: "sudo apt-get install -y iptables   # and run berth serve as root",
    }),
    yesOrLimited("egress domains", egressDomains, "sandboxes can reach chosen domains, through a proxy", {
      found: "sandboxes cannot reach chosen domains: that needs root, and the daemon on this machine",
      fix: "Run berth serve as root on the machine of the Docker daemon",
    }),
  ];
}

/** Checks that Docker knows the allowed runtimes. */
export function diagnoseRuntimes(
  facts: Pick<DaemonFacts, "Runtimes">,
  allowed: Readonly<Record<string, IsolationLevel>>,
): Finding[] {
  const known = Object.keys(facts.Runtimes ?? {});
  return Object.keys(allowed).map((name) =>
    yesOrLimited(`runtime ${name}`, known.includes(name), "registered with Docker", {
      found: `Docker does not know it; it has ${known.join(", ")}`,
      fix: name.startsWith("runsc")
        ? "CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@latest && sudo ~/go/bin/runsc install -- --platform=systrap && sudo systemctl reload docker"
        : `Add to /etc/docker/daemon.json: "runtimes": {"${name}": {"path": "/usr/local/bin/${name}"}}\nsudo systemctl reload docker`,
    }),
  );
}

function storage({ Driver: driver }: DaemonFacts): Finding {
  return yesOrLimited("storage driver", driver !== "vfs", driver, {
    found: "vfs: every sandbox is a full copy of its image, slow to create and large",
    fix: 'Set "storage-driver": "overlay2" in /etc/docker/daemon.json\nsudo systemctl restart docker',
  });
}

async function isInstalled(program: string): Promise<boolean> {
  const dirs = [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/usr/local/sbin"];
  const found = await Promise.all(
    dirs.map((dir) =>
      access(path.join(dir, program), constants.X_OK).then(
        () => true,
        () => false,
      ),
    ),
  );
  return found.includes(true);
}

async function isDirectory(dir: string): Promise<boolean> {
  return access(dir).then(
    () => true,
    () => false,
  );
}

/** How long a registry may take to answer. */
const REGISTRY_TIMEOUT_MS = 15_000;

/** Checks that the default image is present or can be pulled. */
async function diagnoseImage(daemon: Daemon, image: string): Promise<Finding> {
  const subject = "default image";
  const { found, isAvailable } = await lookUp(daemon, image);
  if (isAvailable) return { subject, status: "ok", found };
  const others = await localImages(daemon);
  return {
    subject,
    status: "missing",
    found,
    fix:
      others.length === 0
        ? `docker pull ${image}`
        : `docker pull ${image}\nor use one that is there (${others.slice(0, 5).join(", ")}): berth serve --default-image IMAGE`,
  };
}

/** Checks that the image of desktops and browsers is present or can be pulled. Everything else works without it. */
async function diagnoseDesktopImage(daemon: Daemon, image: string): Promise<Finding> {
  const subject = "desktop image";
  const { found, isAvailable } = await lookUp(daemon, image);
  if (isAvailable) return { subject, status: "ok", found };
  return {
    subject,
    status: "limited",
    found: `no vm and browser sessions: ${found}`,
    fix: "scripts/base-image.sh --desktop   # in Berth's sources\nor use another one: berth serve --desktop-image IMAGE",
  };
}

async function lookUp(daemon: Daemon, image: string): Promise<{ isAvailable: boolean; found: string }> {
  if (await isThere(daemon, image)) return { isAvailable: true, found: `${image} is there` };
  const refusal = await pullRefusal(daemon, image);
  return refusal === undefined
    ? { isAvailable: true, found: `${image} can be pulled, which the first sandbox will do` }
    : { isAvailable: false, found: `${image} is not there, and ${refusal}` };
}

async function isThere(daemon: Daemon, image: string): Promise<boolean> {
  try {
    await daemon.call("looking up an image", (docker) => docker.getImage(image).inspect());
    return true;
  } catch (error) {
    if (answerTo(error)?.statusCode === 404) return false;
    throw error;
  }
}

/** Why the image cannot be pulled; undefined if it can. */
async function pullRefusal(daemon: Daemon, image: string): Promise<string | undefined> {
  try {
    await daemon.call("asking a registry", (docker) => docker.getImage(image).distribution(), {
      timeoutMs: REGISTRY_TIMEOUT_MS,
    });
    return undefined;
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const answer = answerTo(error);
    if (answer === undefined) return "its registry does not answer";
    if (/dial tcp|lookup |timeout|connection re|TLS handshake|EOF/i.test(answer.text)) {
      return "its registry cannot be reached";
    }
    return "its registry does not provide it: it does not exist there, or needs a login";
  }
}

async function localImages(daemon: Daemon): Promise<string[]> {
  const images = await daemon.call("listing images", (docker) => docker.listImages());
  return images.flatMap(({ RepoTags }) => RepoTags ?? []).filter((tag) => !tag.startsWith("<none>"));
}

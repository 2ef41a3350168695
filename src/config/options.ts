import { isIP } from "node:net";
import { homedir } from "node:os";
import path from "node:path";
import { parseCidr } from "../base/cidr.ts";
import { isDockerHost } from "../engine/docker-host.ts";
import type { IsolationLevel } from "../engine/port.ts";
import type { WarmPoolTarget, WarmSessionTarget } from "../sandboxes/warm-pool.ts";
import { parseListenAddress } from "../server/listen-address.ts";
import {
  parseCount,
  parseCpus,
  parseDuration,
  parseKeyValue,
  parseSize,
  parseWord,
  ValueError,
} from "./values.ts";

/**
 * One option of the service. Its name determines the flag (`--idle-timeout`), the environment variable
 * (`BERTH_IDLE_TIMEOUT`) and the key in the configuration file (`"idle-timeout"`).
 */
export type ConfigOption<T> = {
  readonly name: string;
  readonly group: OptionGroup;
  /** One or two sentences. The help adds the variable and the default. */
  readonly help: string;
} & (
  | { readonly kind: "switch"; readonly read: (on: boolean) => T }
  | {
      readonly kind: "value";
      /** Placeholder for the value in the help. */
      readonly placeholder: string;
      readonly read: (text: string) => T;
      /** The default: a text for `read`, or a value without a text form. */
      readonly fallback: string | Fallback<T>;
    }
  | {
      readonly kind: "list";
      readonly placeholder: string;
      /** Parses all given values; none if the option is not set. */
      readonly read: (texts: readonly string[]) => T;
    }
);

/** A default without a text form. */
interface Fallback<T> {
  /** How the help shows it. Empty: not at all. */
  readonly shown: string;
  readonly make: () => T;
}

const UNSET: Fallback<undefined> = { shown: "", make: () => undefined };

/** The heading under which the help shows an option. */
type OptionGroup = "Port" | "Engine" | "Sandboxes" | "Tenants" | "Commands" | "Service";

/** The types of sessions that can be prepared in warm sandboxes. */
const WARM_SESSION_TYPES = ["vm", "browser"];

/** A toleration of pods, in Kubernetes' form. */
interface Toleration {
  readonly key: string;
  readonly operator: "Exists" | "Equal";
  readonly value?: string;
  readonly effect?: string;
}

const LEVELS: Readonly<Record<string, IsolationLevel>> = {
  container: "CONTAINER",
  "user-kernel": "USER_KERNEL",
  "virtual-machine": "VIRTUAL_MACHINE",
};

/** Every option of the service, in the order of the help. */
export const CONFIG_OPTIONS = {
  listen: value("Port", "listen", {
    placeholder: "ADDRESS",
    fallback: "127.0.0.1:7070",
    help: "Where to listen: HOST:PORT, :PORT (every interface) or unix:PATH. Port 0 takes any free one.",
    read: parseListenAddress,
  }),
  tlsCert: value("Port", "tls-cert", {
    placeholder: "FILE",
    fallback: UNSET,
    help: "Certificate chain in PEM; with --tls-key the port speaks TLS. A renewed certificate is used without a restart.",
    read: readPath,
  }),
  tlsKey: value("Port", "tls-key", {
    placeholder: "FILE",
    fallback: UNSET,
    help: "Private key of the certificate in PEM.",
    read: readPath,
  }),
  tlsClientCa: value("Port", "tls-client-ca", {
    placeholder: "FILE",
    fallback: UNSET,
    help: "Certificate authorities in PEM. Clients must present a certificate from one of them, in addition to their token.",
    read: readPath,
  }),
  tokens: value("Port", "tokens", {
    placeholder: "FILE",
    fallback: UNSET,
    help: "The callers' tokens and their tenants; `berth token create` writes it. Without it, anyone who reaches the port can do everything.",
    read: readPath,
  }),
  secrets: value("Port", "secrets", {
    placeholder: "FILE|DIR",
    fallback: UNSET,
    help: "Secrets that commands use by name: a YAML file, or a directory as Docker and Kubernetes mount it. Tenants may use those that the tokens file grants them.",
    read: readPath,
  }),
  insecure: toggle(
    "Port",
    "insecure",
    "Allow listening beyond loopback without tokens, so that anyone who reaches the port can run code, or without TLS, so that anyone on the network path can read the tokens.",
  ),
  allowHosts: list("Port", "allow-host", {
    placeholder: "NAME",
    help: "A host name that clients may use for the service, in addition to loopback names and the address.",
    read: (names) => names.map(readHostName),
  }),
  corsOrigins: list("Port", "cors-origin", {
    placeholder: "ORIGIN",
    help: "Allow web pages of this origin to call the service.",
    read: (origins) => origins.map(readOrigin),
  }),

  engine: value("Engine", "engine", {
    placeholder: "NAME",
    fallback: "auto",
    help: "What runs the sandboxes: auto, docker, bubblewrap or kubernetes. auto uses docker if the daemon answers, else bubblewrap, unless an earlier run left containers.",
    read: readEngine,
  }),
  dockerRequired: toggle(
    "Engine",
    "docker-required",
    "With --engine auto, require Docker: do not fall back to bubblewrap, which isolates less.",
  ),
  dockerHost: value("Engine", "docker-host", {
    placeholder: "URL",
    fallback: { ...UNSET, shown: "$DOCKER_HOST, else unix:///var/run/docker.sock" },
    help: "The Docker daemon: unix:///PATH or tcp://HOST:PORT.",
    read: readDockerHost,
  }),
  rootfs: value("Engine", "rootfs", {
    placeholder: "DIR",
    fallback: { ...UNSET, shown: "the machine's own" },
    help: "Root file system of bubblewrap's sandboxes, read-only.",
    read: readPath,
  }),
  instance: value("Engine", "instance", {
    placeholder: "ID",
    fallback: { ...UNSET, shown: "the one in the data directory, else random" },
    help: "Name of this service in the labels of its containers. Services that share a daemon need different names.",
    read: readInstance,
  }),
  allowHostPaths: list("Engine", "allow-host-path", {
    placeholder: "DIR",
    help: "Allow sandboxes to mount host directories below this one. A sandbox that can write to one can leave set-user-id files: keep it closed to other users.",
    read: (paths) => paths.map(readAbsolutePath),
  }),
  allowRuntimes: list("Engine", "allow-runtime", {
    placeholder: "NAME=LEVEL",
    help: "Allow sandboxes to request this OCI runtime. LEVEL says how it isolates: container, user-kernel or virtual-machine.",
    read: readRuntimes,
  }),
  kubeconfig: value("Engine", "kubeconfig", {
    placeholder: "FILE",
    fallback: {
      ...UNSET,
      shown: "the service account of Berth's own pod, else $KUBECONFIG or ~/.kube/config",
    },
    help: "How the engine kubernetes reaches its cluster.",
    read: readPath,
  }),
  namespace: value("Engine", "namespace", {
    placeholder: "NAME",
    fallback: { ...UNSET, shown: "that of the kubeconfig or the service account" },
    help: "Namespace of the sandboxes' pods. Anyone who can create pods there can use what they mount, so give Berth a namespace of its own.",
    read: readKubernetesName,
  }),
  nodeSelector: list("Engine", "node-selector", {
    placeholder: "LABEL=VALUE",
    help: "Schedule pods on nodes with this label only.",
    read: (texts) => Object.fromEntries(texts.map((text) => parseKeyValue(text, "LABEL=VALUE"))),
  }),
  tolerations: list("Engine", "toleration", {
    placeholder: "KEY[=VALUE][:EFFECT]",
    help: "Allow pods on nodes with this taint.",
    read: (texts) => texts.map(readToleration),
  }),
  runtimeClass: value("Engine", "runtime-class", {
    placeholder: "NAME",
    fallback: { ...UNSET, shown: "the cluster's" },
    help: "Runtime class of pods; --allow-runtime says how it isolates.",
    read: readKubernetesName,
  }),
  imagePullSecrets: list("Engine", "image-pull-secret", {
    placeholder: "NAME",
    help: "A secret of the namespace that nodes use to pull images.",
    read: (names) => names.map(readKubernetesName),
  }),
  podTemplate: value("Engine", "pod-template", {
    placeholder: "FILE",
    fallback: UNSET,
    help: "A pod in YAML or JSON. Berth takes from it the fields that it does not set itself, such as annotations, affinity, a priority class or sidecars.",
    read: readPath,
  }),
  networkPolicy: value("Engine", "network-policy", {
    placeholder: "enforced|open",
    fallback: UNSET,
    help: "Whether the cluster enforces NetworkPolicy, which NONE and EGRESS need. enforced: it does, and Berth tests that. open: it does not, and every sandbox reaches what pods reach. If not set, Berth refuses the network NONE.",
    read: (text) => parseWord(text, ["enforced", "open"] as const),
  }),
  workspaceVolumeBytes: size("Engine", "workspace-volume-size", {
    fallback: "10GiB",
    min: "1MiB",
    help: "With the engine kubernetes: the size that each workspace's claim requests.",
  }),
  storageClass: value("Engine", "storage-class", {
    placeholder: "NAME",
    fallback: { ...UNSET, shown: "the cluster's default" },
    help: "With the engine kubernetes: storage class of workspaces.",
    read: readKubernetesName,
  }),
  volumeAccessMode: value("Engine", "volume-access-mode", {
    placeholder: "MODE",
    fallback: "ReadWriteOnce",
    help: "With the engine kubernetes: which sandboxes may use a workspace at the same time. ReadWriteOnce: those on one node; ReadWriteMany: any, and they get /shared; ReadWriteOncePod: only one.",
    read: (text) => parseWord(text, ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] as const),
  }),
  volumeClones: toggle(
    "Engine",
    "volume-clones",
    "With the engine kubernetes: fork workspaces by cloning their claims. The storage class must support it.",
  ),
  egressCidrs: list("Engine", "egress-cidr", {
    placeholder: "CIDR",
    help: "With the engine kubernetes: addresses that sandboxes with EGRESS can reach, in addition to the public internet. If ranges overlap, the smaller one takes precedence.",
    read: (texts) => texts.map(readCidr),
  }),
  denyCidrs: list("Engine", "deny-cidr", {
    placeholder: "CIDR",
    help: "With the engine kubernetes: addresses that sandboxes with EGRESS cannot reach, such as the cluster's public ones or a part of an --egress-cidr.",
    read: (texts) => texts.map(readCidr),
  }),
  egressDns: list("Engine", "egress-dns", {
    placeholder: "ADDRESS",
    help: "With the engine kubernetes: a DNS resolver for sandboxes with EGRESS, at most three. Default: 1.1.1.1 and 8.8.8.8.",
    read: readResolvers,
  }),
  egressCredentials: value("Engine", "egress-credentials", {
    placeholder: "FILE",
    fallback: UNSET,
    help: "Headers that the egress proxy adds to requests, by host, in JSON (docs/how-to/add-credentials.md). The secrets never enter a sandbox.",
    read: readPath,
  }),

  maxSandboxes: value("Sandboxes", "max-sandboxes", {
    placeholder: "N",
    fallback: "100",
    help: "Maximum number of sandboxes, including those being removed.",
    read: (text) => parseCount(text, { min: 1, max: 1_000_000 }),
  }),
  tenantMaxSandboxes: value("Tenants", "tenant-max-sandboxes", {
    placeholder: "N",
    fallback: UNSET,
    help: "Maximum number of sandboxes of one tenant. The tokens file can set this and every other quota for a single tenant.",
    read: (text) => parseCount(text, { min: 0, max: 1_000_000 }),
  }),
  tenantMaxMemoryBytes: size("Tenants", "tenant-max-memory", {
    fallback: UNSET,
    min: "1MiB",
    help: "Maximum sum of the memory limits of a tenant's sandboxes.",
  }),
  tenantMaxCpuMillis: value("Tenants", "tenant-max-cpus", {
    placeholder: "N",
    fallback: UNSET,
    help: "Maximum sum of the CPU limits of a tenant's sandboxes.",
    read: parseCpus,
  }),
  tenantMaxPids: value("Tenants", "tenant-max-pids", {
    placeholder: "N",
    fallback: UNSET,
    help: "Maximum sum of the process limits of a tenant's sandboxes.",
    read: (text) => parseCount(text, { min: 1, max: 1_000_000_000 }),
  }),
  tenantMaxExecs: value("Tenants", "tenant-max-execs", {
    placeholder: "N",
    fallback: UNSET,
    help: "Maximum number of a tenant's commands that run at the same time, in all its sandboxes. Code in its bash and python sessions counts as well.",
    read: (text) => parseCount(text, { min: 0, max: 1_000_000 }),
  }),
  tenantMaxSessions: value("Tenants", "tenant-max-sessions", {
    placeholder: "N",
    fallback: UNSET,
    help: "Maximum number of a tenant's sessions, without those that exist for one call.",
    read: (text) => parseCount(text, { min: 0, max: 1_000_000 }),
  }),
  tenantMaxCreatesPerSecond: value("Tenants", "tenant-max-creates-per-second", {
    placeholder: "N",
    fallback: UNSET,
    help: "Maximum number of sandboxes that a tenant creates per second, as a rate and as a burst.",
    read: (text) => parseCount(text, { min: 1, max: 1_000_000 }),
  }),
  tenantMaxTranscriptBytes: size("Tenants", "tenant-max-transcripts", {
    fallback: UNSET,
    min: "1MiB",
    help: "Maximum size of the stored output of a tenant's commands, within --transcript-owner-quota. The oldest is dropped first.",
  }),
  tenantMaxWorkspaceBytes: size("Tenants", "tenant-max-workspaces", {
    fallback: UNSET,
    min: "1MiB",
    help: "Maximum disk space of a tenant's workspaces and shared directory together, as last measured. A tenant that exceeds it gets no new sandbox with a workspace and no import.",
  }),
  defaultImage: value("Sandboxes", "default-image", {
    placeholder: "IMAGE",
    fallback: "python:3.12-slim",
    help: "Image of sandboxes that do not name one.",
    read: readImage,
  }),
  desktopImage: value("Sandboxes", "desktop-image", {
    placeholder: "IMAGE",
    fallback: "berth/desktop",
    help: "Image of the sandboxes of vm and browser sessions.",
    read: readImage,
  }),
  defaultMemoryBytes: size("Sandboxes", "default-memory", {
    fallback: "512MiB",
    min: "6MiB",
    help: "Memory limit of sandboxes that do not set one.",
  }),
  defaultCpuMillis: value("Sandboxes", "default-cpus", {
    placeholder: "N",
    fallback: "1.0",
    help: "CPU limit of sandboxes that do not set one.",
    read: parseCpus,
  }),
  idleTimeoutMs: value("Sandboxes", "idle-timeout", {
    placeholder: "DURATION",
    fallback: "1h",
    help: "How long a sandbox may stay unused before it is deleted.",
    read: (text) => parseDuration(text),
  }),
  maxLifetimeMs: value("Sandboxes", "max-lifetime", {
    placeholder: "DURATION",
    fallback: { ...UNSET, shown: "unbounded" },
    help: "Maximum lifetime of a sandbox, used or not.",
    read: (text) => parseDuration(text),
  }),
  cleanupIntervalMs: value("Sandboxes", "cleanup-interval", {
    placeholder: "DURATION",
    fallback: "300s",
    help: "Maximum time between two checks for expired sandboxes.",
    read: (text) => parseDuration(text, { minMs: 100 }),
  }),
  deleteGraceMs: value("Sandboxes", "delete-grace", {
    placeholder: "DURATION",
    fallback: "5s",
    help: "How long a delete waits for running operations to finish.",
    read: (text) => parseDuration(text, { minMs: 0 }),
  }),
  warmPools: list("Sandboxes", "warm-pool", {
    placeholder: "IMAGE=N",
    help: "Keep N sandboxes of an image started, so that a create takes milliseconds.",
    read: readWarmPools,
  }),
  warmSessions: list("Sandboxes", "warm-session", {
    placeholder: "TYPE=N",
    help: `Keep N sessions of a type started (${WARM_SESSION_TYPES.join(" or ")}), so that a session takes milliseconds.`,
    read: readWarmSessions,
  }),
  sessionTtlMs: value("Sandboxes", "session-ttl", {
    placeholder: "DURATION",
    fallback: "300s",
    help: "How long a session lives after its last call.",
    read: (text) => parseDuration(text),
  }),

  commandTimeoutMs: value("Commands", "command-timeout", {
    placeholder: "DURATION",
    fallback: "300s",
    help: "Timeout of commands that do not set one.",
    read: (text) => parseDuration(text),
  }),
  maxProcessesPerSandbox: value("Commands", "max-processes-per-sandbox", {
    placeholder: "N",
    fallback: "256",
    help: "Maximum number of commands that run in one sandbox at the same time.",
    read: (text) => parseCount(text, { min: 1, max: 100_000 }),
  }),
  transcriptWindowBytes: size("Commands", "transcript-window", {
    fallback: "64MiB",
    min: "64KiB",
    help: "How much output a command may write ahead of its reader before it has to wait. Most of it is on disk.",
  }),
  transcriptQuotaBytes: size("Commands", "transcript-quota", {
    fallback: "4GiB",
    min: "1MiB",
    help: "Maximum size of the stored output of all commands, most of it on disk. The output of ended commands is dropped first, the oldest first.",
  }),
  transcriptOwnerQuotaBytes: size("Commands", "transcript-owner-quota", {
    fallback: "2GiB",
    min: "1MiB",
    help: "Maximum size of one owner's part of it.",
  }),
  answerQuotaBytes: size("Commands", "answer-quota", {
    fallback: "1GiB",
    min: "1MiB",
    help: "Maximum disk space of the answers that are kept for retries. The oldest are dropped first.",
  }),
  answerOwnerQuotaBytes: size("Commands", "answer-owner-quota", {
    fallback: "512MiB",
    min: "1MiB",
    help: "Maximum disk space of one owner's part of them.",
  }),
  runOwnerQuotaBytes: size("Commands", "run-owner-quota", {
    fallback: "512MiB",
    min: "128MiB",
    help: "Maximum disk space of one owner's runs. The oldest that are not running are dropped first.",
  }),

  dataDir: value("Service", "data-dir", {
    placeholder: "DIR",
    fallback: { shown: "/var/lib/berth as root, else ~/.local/state/berth", make: defaultDataDir },
    help: "Directory of the service's database and files; closed to other users.",
    read: readPath,
  }),
  workspacesRoot: value("Service", "workspaces-root", {
    placeholder: "DIR",
    fallback: { ...UNSET, shown: "workspaces below the data directory" },
    help: "Directory that holds the workspaces, each in a directory of its own; closed to other users.",
    read: readPath,
  }),
  sharedRoot: value("Service", "shared-root", {
    placeholder: "DIR",
    fallback: { ...UNSET, shown: "shared below the data directory" },
    help: "Directory that sandboxes with a workspace see as /shared. If no directory above it is closed to other users, Berth closes it and mounts the directory `shared` in it instead.",
    read: readPath,
  }),
  workspaceQuotaBytes: size("Service", "workspace-quota", {
    fallback: { ...UNSET, shown: "unbounded" },
    min: "64KiB",
    help: "Maximum size of one workspace: enforced on ext4 and xfs with project quotas, otherwise watched.",
  }),
  sharedQuotaBytes: size("Service", "shared-quota", {
    fallback: { ...UNSET, shown: "unbounded" },
    min: "64KiB",
    help: "Maximum size of each owner's /shared, enforced or watched like that of a workspace.",
  }),
  auditLog: value("Service", "audit-log", {
    placeholder: "FILE",
    fallback: UNSET,
    help: "Write an audit log to this file: one line of JSON for every call that changes something or is refused, without contents.",
    read: readPath,
  }),
  auditReads: toggle("Service", "audit-reads", "Also record calls that only read."),
  auditFileBytes: size("Service", "audit-file-size", {
    fallback: "64MiB",
    min: "64KiB",
    help: "Size at which the audit log is rotated.",
  }),
  auditFiles: value("Service", "audit-files", {
    placeholder: "N",
    fallback: "10",
    help: "Maximum number of audit log files. The oldest is removed.",
    read: (text) => parseCount(text, { min: 1, max: 1000 }),
  }),
  stopTimeoutMs: value("Service", "stop-timeout", {
    placeholder: "DURATION",
    fallback: "30s",
    help: "How long the service may take to stop.",
    read: (text) => parseDuration(text),
  }),
  leaveSandboxes: toggle("Service", "leave-sandboxes", "Do not delete the sandboxes when the service stops."),
  logLevel: value("Service", "log-level", {
    placeholder: "LEVEL",
    fallback: "info",
    help: "How much to log: trace, debug, info, warn, error, fatal or silent.",
    read: (text) => parseWord(text, ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const),
  }),
  logFormat: value("Service", "log-format", {
    placeholder: "FORMAT",
    fallback: "auto",
    help: "How to log: text for people, json, or auto, which is text on a terminal and json elsewhere.",
    read: (text) => parseWord(text, ["auto", "text", "json"] as const),
  }),
};

/**
 * The configuration of a service: every option parsed, checked and filled in with its default. Times are in
 * milliseconds, sizes in bytes, paths absolute.
 */
export type Config = {
  readonly [K in keyof typeof CONFIG_OPTIONS]: (typeof CONFIG_OPTIONS)[K] extends ConfigOption<infer T>
    ? T
    : never;
};

function toggle(group: OptionGroup, name: string, help: string): ConfigOption<boolean> {
  return { kind: "switch", group, name, help, read: (on) => on };
}

function list<T>(
  group: OptionGroup,
  name: string,
  rest: {
    readonly placeholder: string;
    readonly help: string;
    readonly read: (texts: readonly string[]) => T;
  },
): ConfigOption<T> {
  return { kind: "list", group, name, ...rest };
}

function value<T, F = never>(
  group: OptionGroup,
  name: string,
  rest: {
    readonly placeholder: string;
    readonly help: string;
    readonly read: (text: string) => T;
    readonly fallback: string | Fallback<F>;
  },
): ConfigOption<T | F> {
  return { kind: "value", group, name, ...rest };
}

/** A size in bytes, at least `min`. */
function size<F = never>(
  group: OptionGroup,
  name: string,
  {
    min,
    ...rest
  }: {
    readonly min: string;
    readonly help: string;
    readonly fallback: string | Fallback<F>;
  },
): ConfigOption<number | F> {
  return value(group, name, { ...rest, placeholder: "SIZE", read: (text) => parseSize(text, { min }) });
}

/** Follows the XDG base directory specification and the Filesystem Hierarchy Standard. */
function defaultDataDir(): string {
  if (process.getuid?.() === 0) return "/var/lib/berth";
  return path.join(process.env.XDG_STATE_HOME || path.join(homedir(), ".local", "state"), "berth");
}

function readPath(text: string): string {
  if (text === "") throw new ValueError("the path is empty");
  return path.resolve(text);
}

function readAbsolutePath(text: string): string {
  if (!path.isAbsolute(text)) throw new ValueError(`"${text}" is not an absolute path`);
  return path.normalize(text);
}

function readHostName(text: string): string {
  if (!/^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$/.test(text)) {
    throw new ValueError(
      `"${text}" is not a host name; write it without scheme and port, as berth.example.com`,
    );
  }
  return text.toLowerCase();
}

function readOrigin(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.origin !== text.toLowerCase()) {
    throw new ValueError(
      `"${text}" is not an origin; write it as https://app.example.com, with nothing after it`,
    );
  }
  return url.origin;
}

function readEngine(text: string): "auto" | "docker" | "bubblewrap" | "kubernetes" {
  return parseWord(text, ["auto", "docker", "bubblewrap", "kubernetes"] as const);
}

function readKubernetesName(text: string): string {
  if (!/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(text)) {
    throw new ValueError(`"${text}" is not a name of Kubernetes: lower case letters, digits, "-" and "."`);
  }
  return text;
}

function readCidr(text: string): string {
  const found = parseCidr(text);
  if (typeof found === "string") throw new ValueError(found);
  return found.text;
}

function readResolvers(texts: readonly string[]): string[] {
  for (const text of texts) {
    if (isIP(text) === 0 || text.includes("%"))
      throw new ValueError(`"${text}" is not an address; write 10.0.0.53 or fd00::53`);
  }
  if (texts.length > 3) throw new ValueError("pods have three resolvers at most");
  return [...texts];
}

function readToleration(text: string): Toleration {
  const [, key = "", hasValue, value = "", effect] = /^([^=:]*)(=([^:]*))?(?::(.*))?$/.exec(text) ?? [];
  const effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
  if (key === "" || (effect !== undefined && !effects.includes(effect))) {
    throw new ValueError(
      `"${text}" is not of the form KEY[=VALUE][:EFFECT]; effects are ${effects.join(", ")}`,
    );
  }
  return {
    key,
    ...(hasValue === undefined ? { operator: "Exists" as const } : { operator: "Equal" as const, value }),
    ...(effect !== undefined && { effect }),
  };
}

function readDockerHost(text: string): string {
  if (!isDockerHost(text))
    throw new ValueError(
      `"${text}" is not the address of a daemon; write unix:///var/run/docker.sock or tcp://HOST:2375`,
    );
  return text;
}

function readInstance(text: string): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/.test(text)) {
    throw new ValueError(`"${text}" is not an id of 1 to 63 letters, digits, ".", "_" and "-"`);
  }
  return text;
}

function readImage(text: string): string {
  if (!/^[^\s-]\S*$/.test(text)) throw new ValueError(`"${text}" is not the name of an image`);
  return text;
}

function readWarmPools(texts: readonly string[]): WarmPoolTarget[] {
  const pools = texts.map((text) => {
    const [image, count] = parseKeyValue(text, "IMAGE=N");
    return { image: readImage(image), count: parseCount(count, { min: 1, max: 1000 }) };
  });
  const twice = pools.find(({ image }, index) => pools.findIndex((other) => other.image === image) < index);
  if (twice) throw new ValueError(`"${twice.image}" is named twice; give its number once`);
  return pools;
}

function readWarmSessions(texts: readonly string[]): WarmSessionTarget[] {
  const targets = texts.map((text) => {
    const [type, count] = parseKeyValue(text, "TYPE=N");
    return {
      resourceType: parseWord(type, WARM_SESSION_TYPES),
      count: parseCount(count, { min: 1, max: 100 }),
    };
  });
  const types = targets.map(({ resourceType }) => resourceType);
  const twice = types.find((type, index) => types.indexOf(type) < index);
  if (twice) throw new ValueError(`"${twice}" is named twice; give its number once`);
  return targets;
}

function readRuntimes(texts: readonly string[]): Record<string, IsolationLevel> {
  const runtimes: Record<string, IsolationLevel> = {};
  for (const text of texts) {
    const [name, word] = parseKeyValue(text, "NAME=LEVEL");
    const level = LEVELS[parseWord(word, Object.keys(LEVELS))];
    if (level) runtimes[name] = level;
  }
  return runtimes;
}

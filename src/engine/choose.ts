import type { Finding } from "../base/diagnosis.ts";
import { BerthError, invalidArgument, throwIfAborted } from "../base/errors.ts";
import { type Logger, SILENT } from "../base/logger.ts";
import { diagnoseBubblewrap } from "./bubblewrap/diagnose.ts";
import { BubblewrapEngine, type BubblewrapEngineOptions, isBubblewrapRef } from "./bubblewrap/engine.ts";
import { DELEGATE, missingLimits } from "./bubblewrap/info.ts";
import { pipesDirectory } from "./docker/container-pipes.ts";
import { diagnoseDocker } from "./docker/diagnose.ts";
import { DockerEngine, type DockerEngineOptions } from "./docker/engine.ts";
import { diagnoseKubernetes } from "./kubernetes/diagnose.ts";
import { KubernetesEngine, type KubernetesEngineOptions } from "./kubernetes/engine.ts";
import { holderOf } from "./kubernetes/lease.ts";
import { readTemplate } from "./kubernetes/template.ts";
import type { VolumeAccessMode } from "./kubernetes/volumes.ts";
import type { Engine, IsolationLevel } from "./port.ts";
import { describeIsolation } from "./port.ts";

/** The settings that choose and set up an engine. */
interface EngineSettings {
  /** `auto`: Docker if it answers, else bubblewrap. */
  readonly engine: "auto" | "docker" | "bubblewrap" | "kubernetes";
  /** Whether `auto` must not fall back to bubblewrap. */
  readonly dockerRequired: boolean;
  /**
   * The image of sandboxes that name none. Bubblewrap has no images; there it is the name for the machine's own system.
   */
  readonly defaults: { readonly image: string };
  readonly dockerHost: string | undefined;
  /** Root file system of bubblewrap's sandboxes; undefined: the machine's own. */
  readonly rootfs: string | undefined;
  /** Path of a kubeconfig. Default: the client library looks for one. */
  readonly kubeconfig: string | undefined;
  readonly namespace: string | undefined;
  readonly nodeSelector: Readonly<Record<string, string>>;
  readonly tolerations: KubernetesEngineOptions["tolerations"];
  readonly runtimeClass: string | undefined;
  readonly imagePullSecrets: readonly string[];
  /** Path of a file. */
  readonly podTemplate: string | undefined;
  readonly networkPolicy: KubernetesEngineOptions["networkPolicy"];
  /** Size of each workspace in bytes, if workspaces are volumes. */
  readonly workspaceVolumeBytes: number;
  /** Default: the cluster's. */
  readonly storageClass: string | undefined;
  readonly volumeAccessMode: VolumeAccessMode;
  readonly volumeClones: boolean;
  readonly egressCidrs: readonly string[];
  readonly denyCidrs: readonly string[];
  /** Empty: public resolvers. */
  readonly egressDns: readonly string[];
  readonly allowHostPaths: readonly string[];
  /** Default: in the data directory. */
  readonly workspacesRoot: string | undefined;
  readonly allowRuntimes: Readonly<Record<string, IsolationLevel>>;
  readonly dataDir: string;
  /** Whether sandboxes outlive the service. */
  readonly leaveSandboxes: boolean;
}

/**
 * Opens the engine that the settings name or, with `auto`, the best one that works, with a warning if that is not
 * Docker.
 * @param instance distinguishes this service's containers from others on the same daemon.
 * @param left reads the refs of the sandboxes that an earlier run left. Where some are containers, there is no fallback:
 *   another engine does not see them, so the service would report them as lost. If bubblewrap is named, they are, with a
 *   warning.
 * @throws `ENGINE_UNAVAILABLE` with what is wrong with each engine that was tried.
 */
export async function chooseEngine(
  settings: EngineSettings,
  instance: string,
  logger: Logger,
  left: () => readonly string[],
  signal?: AbortSignal,
): Promise<Engine> {
  const { engine: name } = settings;
  requirePolicies(settings);
  if ((name === "bubblewrap" || name === "kubernetes") && settings.dockerRequired) {
    throw new BerthError(
      "INVALID_ARGUMENT",
      `--engine ${name} and --docker-required cannot be used together.`,
    );
  }
  if (name === "kubernetes") {
    const options = await kubernetesOptions(settings, instance, logger);
    return KubernetesEngine.open({ ...options, holder: await holderOf(settings.dataDir) }, signal);
  }
  const containers = (): number => left().filter((ref) => !isBubblewrapRef(ref)).length;
  if (settings.engine === "bubblewrap") {
    if (containers() > 0)
      logger.warn(
        { containers: containers(), instance },
        "an earlier run left sandboxes in containers, which bubblewrap does not see: they are reported as lost, but run on. Remove them: docker rm -f $(docker ps -aq --filter label=berth.instance=INSTANCE)",
      );
    return openBubblewrap(settings, logger);
  }
  const docker = new DockerEngine(dockerOptions(settings, instance, logger));
  if (settings.engine === "docker") return docker;
  const noDocker = await failureOf(docker.info(signal));
  if (noDocker === undefined) return docker;
  await docker.close();
  throwIfAborted(signal);
  if (settings.dockerRequired) {
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      `--docker-required allows no other engine. ${noDocker.message}`,
      {
        cause: noDocker,
      },
    );
  }
  if (containers() > 0) {
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      `${noDocker.message}\nAn earlier run left sandboxes in containers (${containers()}), so bubblewrap does not take Docker's place. To give them up: --engine bubblewrap`,
      { cause: noDocker },
    );
  }
  try {
    const engine = await openBubblewrap(settings, logger);
    const { isolation } = await engine.info();
    logger.warn(
      { docker: noDocker.message, isolation },
      `Docker does not answer, so sandboxes run with bubblewrap: ${describeIsolation(isolation)}`,
    );
    return engine;
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      // Each on its own line: a message may end with a command to type.
      `No engine can run sandboxes.\n${noDocker.message}\n${error.message}`,
      {
        cause: error,
      },
    );
  }
}

/**
 * Checks whether a service with these settings would work here. Changes nothing.
 * @param programs checks the root file system that sandboxes without an image see.
 */
export async function diagnoseEngines(
  settings: EngineSettings & { readonly desktopImage: string },
  programs: (rootfs: string) => Promise<Finding[]>,
): Promise<Finding[]> {
  requirePolicies(settings);
  const { defaults, desktopImage, rootfs = "/" } = settings;
  const docker = () => diagnoseDocker(dockerOptions(settings, "", SILENT), defaults.image, desktopImage);
  const bubblewrap = async () => [...(await diagnoseBubblewrap(rootfs)), ...(await programs(rootfs))];
  if (settings.engine === "kubernetes") {
    const options = await kubernetesOptions(settings, "doctor", SILENT);
    return diagnoseKubernetes(options, defaults.image);
  }
  if (settings.engine === "bubblewrap") return bubblewrap();
  if (settings.engine === "docker" || settings.dockerRequired) return docker();
  const [answers, withDocker, without] = await Promise.all([dockerAnswers(settings), docker(), bubblewrap()]);
  if (answers) return [...withDocker, ...asFallback(without)];
  if (isMissing(without)) return [...withDocker, ...without];
  // The service still runs, with less isolation.
  return [
    ...withDocker.map((finding) =>
      finding.status === "missing" ? { ...finding, status: "limited" as const } : finding,
    ),
    ...without,
  ];
}

/** Whether a service would use Docker, even if something else is missing. */
async function dockerAnswers(settings: EngineSettings): Promise<boolean> {
  const docker = new DockerEngine(dockerOptions(settings, "", SILENT));
  try {
    return (await failureOf(docker.info())) === undefined;
  } finally {
    await docker.close();
  }
}

function isMissing(findings: readonly Finding[]): boolean {
  return findings.some(({ status }) => status === "missing");
}

/** One line is enough for an engine that is not used. */
function asFallback(findings: readonly Finding[]): Finding[] {
  return findings
    .slice(0, 1)
    .map((finding) => (finding.status === "missing" ? { ...finding, status: "limited" } : finding));
}

async function openBubblewrap(settings: EngineSettings, logger: Logger): Promise<Engine> {
  const engine = new BubblewrapEngine(bubblewrapOptions(settings, logger));
  const missing = missingLimits(await engine.info());
  if (missing.length > 0) {
    logger.warn({ fix: DELEGATE }, `sandboxes have no limit of ${missing.join(", ")}: see berth doctor`);
  }
  if (settings.leaveSandboxes) {
    logger.warn({}, "--leave-sandboxes has no effect: bubblewrap's sandboxes end with the service");
  }
  return engine;
}

function bubblewrapOptions(settings: EngineSettings, logger: Logger): BubblewrapEngineOptions {
  const { defaults, rootfs } = settings;
  return { logger, image: defaults.image, ...hostPathsOf(settings), ...(rootfs !== undefined && { rootfs }) };
}

function dockerOptions(settings: EngineSettings, instance: string, logger: Logger): DockerEngineOptions {
  return {
    instance,
    logger,
    ...(settings.dockerHost !== undefined && { host: settings.dockerHost }),
    ...hostPathsOf(settings),
    allowedRuntimes: settings.allowRuntimes,
    pipesDir: pipesDirectory(settings.dataDir, instance),
  };
}

function hostPathsOf({ allowHostPaths, dataDir, workspacesRoot = dataDir }: EngineSettings) {
  return { allowedHostPaths: allowHostPaths, hiddenHostPaths: [dataDir, workspacesRoot] };
}

async function kubernetesOptions(
  settings: EngineSettings,
  instance: string,
  logger: Logger,
): Promise<KubernetesEngineOptions> {
  const { kubeconfig, namespace, nodeSelector, tolerations, runtimeClass, imagePullSecrets } = settings;
  const { podTemplate, networkPolicy, allowRuntimes: allowedRuntimes, defaults } = settings;
  const { egressCidrs, denyCidrs, egressDns } = settings;
  const { workspaceVolumeBytes: sizeBytes, storageClass, volumeAccessMode, volumeClones } = settings;
  const volumes = {
    ...{ sizeBytes, storageClass, accessMode: volumeAccessMode, clones: volumeClones },
    image: defaults.image,
  };
  const template = podTemplate === undefined ? undefined : await readTemplate(podTemplate);
  return {
    ...{ instance, logger, kubeconfig, namespace, nodeSelector, tolerations, runtimeClass, imagePullSecrets },
    ...{
      template,
      networkPolicy,
      allowedRuntimes,
      volumes,
      probeImage: defaults.image,
      egressCidrs,
      denyCidrs,
    },
    ...(egressDns.length > 0 && { egressDns }),
  };
}

/** Refuses network options that would have no effect: the operator relies on them. */
function requirePolicies(settings: EngineSettings): void {
  const options = {
    "egress-cidr": "egressCidrs",
    "deny-cidr": "denyCidrs",
    "egress-dns": "egressDns",
  } as const;
  const given = Object.entries(options).find(([, key]) => settings[key].length > 0)?.[0];
  if (given === undefined) return;
  if (settings.engine === "kubernetes" && settings.networkPolicy === "enforced") return;
  throw invalidArgument(
    given,
    `--${given} has an effect only with --engine kubernetes and --network-policy enforced`,
  );
}

async function failureOf(asked: Promise<unknown>): Promise<BerthError | undefined> {
  try {
    await asked;
    return undefined;
  } catch (error) {
    if (error instanceof BerthError) return error;
    throw error;
  }
}

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import { NetworkMode, type SandboxSpecSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { parseCpus, parseSize } from "../config/values.ts";
import { collect, durationValue, flagValue, flagValues, keyValues } from "./flags.ts";
import { type MountInit, parseMount, parseVolume } from "./mounts.ts";

/** Flags that describe a new sandbox. */
export interface SpecFlags {
  readonly image?: string;
  readonly env?: readonly string[];
  readonly secretEnv?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
  readonly memory?: string;
  readonly cpus?: string;
  readonly network?: boolean;
  readonly egressDomain?: readonly string[];
  readonly label?: readonly string[];
  readonly idleTimeout?: string;
  readonly maxLifetime?: string;
  readonly runtime?: string;
  readonly volume?: readonly string[];
  readonly mount?: readonly string[];
  readonly workspace?: string;
}

/** The part of a spec that the flags set. */
export type SpecInit = MessageInitShape<typeof SandboxSpecSchema>;

/** Adds the flags of commands that create a sandbox. */
export function addSpecFlags(command: Command): Command {
  return command
    .option("--image <image>", "image to start from (default: the service's)")
    .option("-e, --env <KEY=VALUE>", "environment variable, may be repeated", collect)
    .option(
      "--secret-env <NAME=SECRET>",
      "environment variable set to a secret of the service, may be repeated",
      collect,
    )
    .option("-w, --workdir <dir>", "directory to start in, created if missing (default: /workspace)")
    .option("-u, --user <user>", "user to run as: a name or uid[:gid] (default: the image's)")
    .option("--memory <size>", "memory limit, such as 512MiB (default: the service's)")
    .option("--cpus <n>", "CPU limit, such as 0.5 (default: the service's)")
    .option("--network", "allow access to public addresses (default: no network)")
    .option(
      "--egress-domain <domain>",
      "allow access to this domain only: example.org, *.example.org or example.org:8443, may be repeated",
      collect,
    )
    .option("-l, --label <KEY=VALUE>", "label for `berth ls -l`, may be repeated", collect)
    .option("--runtime <name>", "OCI runtime that the operator allowed, such as runsc")
    .option(
      "-v, --volume <SOURCE:TARGET[:ro]>",
      "mount a workspace, or a directory of the service's machine by its absolute path, may be repeated",
      collect,
    )
    .option(
      "--mount <settings>",
      "the same, with named settings: type=workspace|bind,source=…,target=…[,readonly], may be repeated",
      collect,
    );
}

/** Adds the flag that mounts a workspace where commands start. */
export function addWorkspaceFlag(command: Command): Command {
  return command.option("--workspace <id>", "workspace to mount at the working directory");
}

/** The service's default working directory. */
const DEFAULT_WORKDIR = "/workspace";

function mountsOf({ volume = [], mount = [], workspace, workdir }: SpecFlags): MountInit[] {
  const own: MountInit[] =
    workspace === undefined
      ? []
      : [{ source: { case: "workspaceId", value: workspace }, target: workdir ?? DEFAULT_WORKDIR }];
  return [
    ...own,
    ...flagValues("--volume", volume, parseVolume),
    ...flagValues("--mount", mount, parseMount),
  ];
}

/** Creates a spec from the flags. The service fills in the rest. */
export function specOf(flags: SpecFlags): SpecInit {
  const memoryBytes = flagValue("--memory", flags.memory, (text) => BigInt(parseSize(text)));
  const cpuMillis = flagValue("--cpus", flags.cpus, parseCpus);
  return {
    image: flags.image,
    env: keyValues("--env", flags.env),
    secretEnv: keyValues("--secret-env", flags.secretEnv),
    workingDir: flags.workdir,
    user: flags.user,
    resources: { memoryBytes, cpuMillis },
    network: flags.network ? { mode: NetworkMode.EGRESS } : undefined,
    egressDomains: [...(flags.egressDomain ?? [])],
    labels: keyValues("--label", flags.label),
    idleTimeout: durationValue("--idle-timeout", flags.idleTimeout),
    maxLifetime: durationValue("--max-lifetime", flags.maxLifetime),
    runtime: flags.runtime,
    mounts: mountsOf(flags),
  };
}

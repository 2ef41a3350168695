import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { NetworkMode, type SandboxSpecSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { parseCpus, parseDuration, parseSize } from "../config/values.ts";
import { collect, flagValue, keyValues } from "./flag-values.ts";

/** What the command line says of a sandbox to be made. */
export interface SpecFlags {
  readonly image?: string;
  readonly env?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
  readonly memory?: string;
  readonly cpus?: string;
  readonly network?: boolean;
  readonly label?: readonly string[];
  readonly idleTimeout?: string;
  readonly maxLifetime?: string;
  readonly runtime?: string;
}

/** The part of a spec that the flags make. */
export type SpecInit = MessageInitShape<typeof SandboxSpecSchema>;

/** Adds the flags that every command which makes a sandbox has. */
export function addSpecFlags(command: Command): Command {
  return command
    .option("--image <image>", "image to start from (default: the service's)")
    .option("-e, --env <KEY=VALUE>", "environment variable, may be repeated", collect)
    .option("-w, --workdir <dir>", "directory to start in, made if missing (default: /workspace)")
    .option("-u, --user <user>", "user to run as: a name or uid[:gid] (default: the image's)")
    .option("--memory <size>", "memory, as 512MiB (default: the service's)")
    .option("--cpus <n>", "CPUs, as 0.5 (default: the service's)")
    .option("--network", "let it reach public addresses (default: no network)")
    .option("-l, --label <KEY=VALUE>", "label for `berth ls -l`, may be repeated", collect)
    .option("--runtime <name>", "OCI runtime that the operator allowed, as runsc");
}

/** Makes a spec of what was said; the rest is the service's to fill in. */
export function specOf(flags: SpecFlags): SpecInit {
  const memoryBytes = flagValue("--memory", flags.memory, (text) => BigInt(parseSize(text)));
  const cpuMillis = flagValue("--cpus", flags.cpus, parseCpus);
  const duration = (text: string) => durationFromMs(parseDuration(text));
  return {
    image: flags.image,
    env: keyValues("--env", flags.env),
    workingDir: flags.workdir,
    user: flags.user,
    resources: { memoryBytes, cpuMillis },
    network: flags.network ? { mode: NetworkMode.EGRESS } : undefined,
    labels: keyValues("--label", flags.label),
    idleTimeout: flagValue("--idle-timeout", flags.idleTimeout, duration),
    maxLifetime: flagValue("--max-lifetime", flags.maxLifetime, duration),
    runtime: flags.runtime,
  };
}

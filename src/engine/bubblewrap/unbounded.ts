import type { EngineInfo } from "../port.ts";

/** What gives a service control groups that it may write. */
export const DELEGATE =
  "As root, or with control groups of its own, the service can bound them:\nsystemd-run --user --scope -p Delegate=yes berth serve --engine bubblewrap";

/** What sandboxes are not held to on this machine, in words for a person; empty where every bound holds. */
export function unbounded({ capabilities }: EngineInfo): string[] {
  const { memoryLimit, cpuLimit, pidsLimit } = capabilities;
  return [
    ...(memoryLimit ? [] : ["memory (each process is held to it, not the sandbox)"]),
    ...(cpuLimit ? [] : ["cpu"]),
    ...(pidsLimit ? [] : ["processes (that takes Linux 5.14 or control groups)"]),
  ];
}

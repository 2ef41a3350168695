import { BerthError } from "../base/errors.ts";
import type { EngineMount } from "../engine/port.ts";
import type { SandboxSpec } from "./sandbox.ts";

/** Knows the directories of the host behind the mounts of a spec. */
export interface MountSources {
  /**
   * Says whether a sandbox may be made with these mounts. Called in the moment in
   * which the sandbox becomes known, so that whoever wants a workspace for itself
   * and closes it first finds every sandbox that uses it.
   * @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_IN_USE`, `UNSUPPORTED`.
   */
  check(owner: string, spec: SandboxSpec): void;
  /** The directories. @throws as {@link check}, `WORKSPACE_BROKEN`. */
  resolve(owner: string, spec: SandboxSpec): Promise<EngineMount[]>;
}

/** Mounts of host paths alone. */
export const HOST_MOUNTS: MountSources = {
  check: (_owner, spec) => void hostMounts(spec),
  resolve: async (_owner, spec) => hostMounts(spec),
};

function hostMounts(spec: SandboxSpec): EngineMount[] {
  return spec.mounts.map(({ source, target, readOnly }, index) => {
    if (source.kind === "host") return { hostPath: source.path, target, readOnly, giveToUser: false };
    throw new BerthError(
      "UNSUPPORTED",
      `spec.mounts[${index}].workspace_id: this server offers no workspaces.`,
    );
  });
}

import { BerthError } from "../../src/base/errors.ts";
import type { EngineMount } from "../../src/engine/port.ts";
import type { SandboxSpec } from "../../src/sandboxes/sandbox.ts";
import type { MountSources } from "../../src/sandboxes/spec.ts";

/** Accepts only mounts of host paths. */
export const HOST_MOUNTS: MountSources = {
  admit: async () => {},
  check: (_owner, spec) => void hostMounts(spec),
  resolve: async (_owner, spec) => hostMounts(spec),
};

function hostMounts(spec: SandboxSpec): EngineMount[] {
  return spec.mounts.map(({ source, target, readOnly }, index) => {
    if (source.kind === "host")
      return { kind: "host", hostPath: source.path, target, readOnly, giveToUser: false };
    throw new BerthError(
      "UNSUPPORTED",
      `spec.mounts[${index}].workspace_id: this server offers no workspaces.`,
    );
  });
}

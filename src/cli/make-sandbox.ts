import type { Sandbox } from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { ServiceClient } from "./client.ts";
import { type PullDisplay, withPullDisplay } from "./pull-progress.ts";
import type { SpecInit } from "./spec-flags.ts";

/** What {@link makeSandbox} is to do. */
export interface MakeSandboxOptions {
  readonly sandboxId: string;
  readonly spec: SpecInit;
  /** Shows the pull of its image. */
  readonly display: PullDisplay;
  readonly signal: AbortSignal;
}

/** Creates a sandbox and shows the pull of its image meanwhile. */
export async function makeSandbox(
  client: ServiceClient,
  { sandboxId, spec, display, signal }: MakeSandboxOptions,
): Promise<Sandbox> {
  const { sandbox } = await withPullDisplay(client, sandboxId, display, signal, () =>
    client.sandboxes.createSandbox({ sandboxId, spec }, { signal }),
  );
  if (sandbox === undefined) throw new Error("the service answered without a sandbox");
  return sandbox;
}

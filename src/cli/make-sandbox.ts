import { CreateSandboxResponseSchema, type Sandbox } from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { ServiceClient } from "./client.ts";
import type { Io } from "./io.ts";
import { writeJson } from "./io.ts";
import { messageJson } from "./message-json.ts";
import { jsonDisplay, plainDisplay, terminalDisplay, withPullDisplay } from "./pull-progress.ts";
import type { SpecInit } from "./spec-flags.ts";

/** What {@link makeSandbox} is to do. */
export interface MakeSandboxOptions {
  readonly sandboxId: string;
  readonly spec: SpecInit;
  /** Whether to write events and the sandbox to stdout as JSON. */
  readonly json: boolean;
  readonly signal: AbortSignal;
}

/** Creates a sandbox and shows the pull of its image meanwhile. */
export async function makeSandbox(
  client: ServiceClient,
  io: Io,
  options: MakeSandboxOptions,
): Promise<Sandbox> {
  const { sandboxId, spec, json, signal } = options;
  const display = json ? jsonDisplay(io) : io.stderr.isTTY ? terminalDisplay(io) : plainDisplay(io);
  const response = await withPullDisplay(client, sandboxId, display, signal, () =>
    client.sandboxes.createSandbox({ sandboxId, spec }, { signal }),
  );
  if (response.sandbox === undefined) throw new Error("the service answered without a sandbox");
  if (json) await writeJson(io.stdout, messageJson(CreateSandboxResponseSchema, response));
  return response.sandbox;
}

import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { SandboxSchema } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { newId } from "../../base/ids.ts";
import type { ServiceClient } from "../client.ts";
import { remarkLine } from "../colour.ts";
import { commandEnd } from "../command-end.ts";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { callFailure } from "../failure.ts";
import { durationValue } from "../flags.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { jsonDisplay, makeSandbox, textDisplay } from "../make-sandbox.ts";
import { addSpecFlags, addWorkspaceFlag, type SpecFlags, specOf } from "../spec-flags.ts";
import { stdinFor, streamProcess } from "../stream-process.ts";

/** The sandbox is never idle while in use. If its client dies, this soon removes it. */
const IDLE_TIMEOUT_MS = 60_000;

/** How long the program waits for its sandbox to be deleted. Then it prints a warning and ends. */
const DELETE_TIMEOUT_MS = 30_000;

interface RunFlags extends ClientFlags, SpecFlags {
  readonly timeout?: string;
  readonly interactive?: boolean;
}

/** `berth run`: runs one command in its own sandbox. */
export function runCommand(host: CommandHost): Command {
  return addWorkspaceFlag(addSpecFlags(clientCommand("run")))
    .summary("run a command in a new sandbox and delete the sandbox")
    .description(
      "Creates a sandbox, runs the command in it, and deletes the sandbox whatever happens. Output is passed on as it is " +
        "written. The exit code is the command's: 128+n if signal n ended it, 124 if it exceeded its timeout, 137 if it ran out " +
        "of memory, 125 if Berth failed.",
    )
    .option("--timeout <duration>", "how long it may run, such as 30s (default: the service's)")
    .option("-i, --interactive", "pass stdin on even if it is a terminal")
    .argument("<command...>", "the program and its arguments; put -- before it")
    .passThroughOptions()
    .addHelpText(
      "after",
      examples(
        "berth run -- python3 -c 'print(6 * 7)'",
        "echo hello | berth run --image alpine -- wc -c",
        "berth run --network --memory 1GiB --timeout 5m -- pip download requests",
        "berth run --workspace job -v /data:/data:ro -- ls /data",
      ),
    )
    .action(
      host.action(async (command: string[], flags: RunFlags) => {
        const timeout = durationValue("--timeout", flags.timeout);
        const spec = { ...specOf(flags), idleTimeout: durationFromMs(IDLE_TIMEOUT_MS) };
        const json = flags.json === true;
        const { signal } = host.interrupts;
        return withClient(host, flags, EXIT.noCommand, async (client) => {
          const sandboxId = newId("sbx");
          host.interrupts.lastWords = `The sandbox may still exist. Delete it with: berth rm ${sandboxId}`;
          let made = false;
          try {
            const display = json ? jsonDisplay(host.io, signal) : textDisplay(host.io);
            const sandbox = await makeSandbox(client, { sandboxId, spec, display, signal });
            made = true;
            if (json) {
              await writeJson(host.io.stdout, { sandbox: messageJson(SandboxSchema, sandbox) }, signal);
            }
            const request = {
              sandboxId,
              command: { case: "argv" as const, value: { args: command } },
              timeout,
            };
            const stdin = stdinFor(host.io, flags.interactive === true);
            const status = await streamProcess(client, host.io, { request, stdin, json, signal });
            const { exitCode, remark } = commandEnd(status);
            if (remark !== undefined) await write(host.io.stderr, remarkLine(remark));
            return exitCode;
          } finally {
            await deleteQuietly(client, host, sandboxId, made);
          }
        });
      }),
    );
}

/** Deletes the sandbox, also if the create failed halfway. Reports a failure only if the sandbox certainly existed. */
async function deleteQuietly(
  client: ServiceClient,
  { io }: CommandHost,
  sandboxId: string,
  made: boolean,
): Promise<void> {
  try {
    const now = durationFromMs(0);
    await client.sandboxes.deleteSandbox({ sandboxId, grace: now }, { timeoutMs: DELETE_TIMEOUT_MS });
  } catch (error) {
    if (!made) return;
    const failure = callFailure(error, client.address, EXIT.failed);
    const why = failure instanceof Error ? failure.message : String(failure);
    io.stderr.write(
      remarkLine(
        `the sandbox ${sandboxId} could not be deleted (${why}). Delete it with: berth rm ${sandboxId}`,
      ),
    );
  }
}

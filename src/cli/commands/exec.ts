import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  type ExecRequestSchema,
  type ExecResponse,
  ExecResponseSchema,
  OnDisconnect,
} from "../../../gen/ts/berth/v1/process_pb.js";
import type { ServiceClient } from "../client.ts";
import { remarkLine } from "../colour.ts";
import { commandEnd } from "../command-end.ts";
import { examples } from "../examples.ts";
import { EXIT, UsageError } from "../exit.ts";
import { addExecFlags, argvOf, durationValue, type ExecFlags, execRequestOf } from "../flags.ts";
import { messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { stdinFor, streamProcess } from "../stream-process.ts";

/** Starts a process that keeps running without this program. Returns its id and its first event. */
async function startDetached(
  client: ServiceClient,
  request: MessageInitShape<typeof ExecRequestSchema>,
  signal: AbortSignal,
): Promise<{ readonly processId: string; readonly response: ExecResponse }> {
  // Leaving the loop does not end the call, so abort it.
  const leave = new AbortController();
  const detached = { ...request, onDisconnect: OnDisconnect.DETACH };
  const call = client.processes.exec(detached, { signal: AbortSignal.any([signal, leave.signal]) });
  try {
    for await (const response of call) {
      if (response.event.case === "started") return { processId: response.event.value.processId, response };
    }
    throw new Error("the service ended the stream without having started the process");
  } finally {
    leave.abort();
  }
}

interface Flags extends ClientFlags, ExecFlags {
  readonly timeout?: string;
  readonly interactive?: boolean;
  readonly detach?: boolean;
}

/** `berth exec`: runs a command in an existing sandbox. */
export function execCommand(host: CommandHost): Command {
  return addExecFlags(clientCommand("exec"))
    .summary("run a command in a sandbox")
    .description(
      "Runs a command in a sandbox. stdin is passed on unless it is a terminal. The exit code is the command's, as for `berth run`. " +
        "With -d the command runs in the background with an empty stdin, and `berth logs` shows its output.",
    )
    .usage("[options] SANDBOX -- COMMAND [ARGUMENT...]")
    .option("--timeout <duration>", "how long it may run, such as 30s (default: the sandbox's)")
    .option("-i, --interactive", "pass stdin on even if it is a terminal")
    .option("-d, --detach", "print the process's id and leave it running")
    .argument("<sandbox>", "id of the sandbox")
    .argument("<command...>", "the program and its arguments; put -- before it")
    .passThroughOptions()
    .addHelpText(
      "after",
      examples(
        "berth exec SANDBOX -- ls -l",
        "berth exec -e DEBUG=1 -w /tmp SANDBOX -- sh -c 'echo $DEBUG > out'",
        "tar c . | berth exec SANDBOX -- tar x",
        "berth exec -d SANDBOX -- make test",
      ),
    )
    .action(
      host.action(async (sandboxId: string, words: string[], flags: Flags) => {
        const args = argvOf(words);
        if (args.length === 0)
          throw new UsageError("there is no command; write: berth exec SANDBOX -- COMMAND");
        const request = {
          ...execRequestOf(sandboxId, flags),
          command: { case: "argv" as const, value: { args } },
          timeout: durationValue("--timeout", flags.timeout),
        };
        if (flags.detach && flags.interactive) {
          throw new UsageError("-d and -i cannot be used together: a detached command has no stdin");
        }
        const json = flags.json === true;
        const { signal } = host.interrupts;
        return withClient(host, flags, EXIT.noCommand, async (client) => {
          if (flags.detach) {
            const { processId, response } = await startDetached(client, request, signal);
            host.interrupts.made = `The command was started. End it with: berth kill ${processId}`;
            if (json) await writeJson(host.io.stdout, messageJson(ExecResponseSchema, response));
            else await write(host.io.stdout, `${processId}\n`);
            return EXIT.ok;
          }
          const stdin = stdinFor(host.io, flags.interactive === true);
          const status = await streamProcess(client, host.io, { request, stdin, json, signal });
          const { exitCode, remark } = commandEnd(status);
          if (remark !== undefined) await write(host.io.stderr, remarkLine(remark));
          return exitCode;
        });
      }),
    );
}

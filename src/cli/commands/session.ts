import { create } from "@bufbuild/protobuf";
import { durationFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { Command } from "commander";
import {
  CreateSessionsResponseSchema,
  DestroySessionsResponseSchema,
  ListSessionsResponseSchema,
  ReinitializeSessionResponseSchema,
  type Session,
  type SessionResult,
  SessionResultStatus,
  SessionStatus,
} from "../../../gen/ts/berth/v1/session_pb.js";
import { parseDuration } from "../../config/values.ts";
import type { ServiceClient } from "../client.ts";
import { EXIT, UsageError } from "../exit.ts";
import { flagValue, jsonObject, toolParams, type WorkerFlags, workerCommand, workerOf } from "../flags.ts";
import { formatDuration, formatTable, formatWord, messageJson, visible } from "../format.ts";
import { type CommandHost, clientCommand, withClient } from "../host.ts";
import { type Io, write, writeJson } from "../io.ts";

import { viewCommand } from "./session-view.ts";

const PAGE_SIZE = 1000;

interface CreateFlags extends WorkerFlags {
  readonly config?: string;
  readonly sandbox?: string;
  readonly workspace?: string;
  readonly ttl?: string;
}

interface EndFlags extends WorkerFlags {
  readonly config?: string;
  readonly grace?: string;
}

/** `berth session …`: the sessions of workers. */
export function sessionCommand(host: CommandHost): Command {
  return new Command("session")
    .summary("make, list, show and end sessions")
    .description(
      "Sessions: shells, interpreters and other resources that stay between the calls of a worker.",
    )
    .addCommand(createCommand(host))
    .addCommand(listCommand(host))
    .addCommand(viewCommand(host))
    .addCommand(resetCommand(host))
    .addCommand(removeCommand(host));
}

function createCommand(host: CommandHost): Command {
  return workerCommand("create")
    .description("Makes a session of each type for a worker, and prints their ids.")
    .option("--config <json>", "their settings, as the type's schema says")
    .option("--sandbox <id>", "the sandbox to live in (default: one of its own)")
    .option("--workspace <id>", "the workspace to mount in its sandbox")
    .option("--ttl <duration>", "how long it lives after its last call (default: the service's)")
    .usage("[options] TYPE... [NAME=TEXT | NAME:=JSON]...")
    .argument(
      "<type...>",
      "bash, python, vm, … (see berth tool ls), and their settings: screen_size:='[1280,800]'",
    )
    .action(
      host.action(async (words: string[], flags: CreateFlags) => {
        const [types = [], settings = []] = [false, true].map((is) =>
          words.filter((word) => word.includes("=") === is),
        );
        if (types.length === 0) throw new UsageError("name the type to create, for instance vm");
        const given = flags.config === undefined ? {} : jsonObject("--config", flags.config);
        const config = { ...given, ...toolParams(settings) };
        const common = {
          config: flags.config === undefined && settings.length === 0 ? undefined : config,
          sandboxId: flags.sandbox,
          workspaceId: flags.workspace,
          ttl: flagValue("--ttl", flags.ttl, (text) => durationFromMs(parseDuration(text))),
        };
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          const request = {
            workerId: workerOf(flags, io.env),
            resources: types.map((resourceType) => ({ resourceType, ...common })),
          };
          const answer = await client.sessions.createSessions(request, { signal: interrupts.signal });
          if (flags.json) await writeJson(io.stdout, messageJson(CreateSessionsResponseSchema, answer));
          return tellResults(io, answer.results, flags.json === true);
        });
      }),
    );
}

function listCommand(host: CommandHost): Command {
  return clientCommand("ls")
    .description("Lists sessions, newest first.")
    .option("-w, --worker <id>", "only those of this worker")
    .action(
      host.action(async (flags: WorkerFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const sessions = await listAll(client, flags.worker ?? "", host.interrupts.signal);
          const { stdout } = host.io;
          if (flags.json) {
            const answer = create(ListSessionsResponseSchema, { sessions });
            await writeJson(stdout, messageJson(ListSessionsResponseSchema, answer));
          } else {
            const now = Date.now();
            const rows = sessions.map((session) => row(session, now));
            await write(stdout, formatTable(["ID", "WORKER", "TYPE", "STATUS", "SANDBOX", "EXPIRES"], rows));
          }
          return EXIT.ok;
        }),
      ),
    );
}

function resetCommand(host: CommandHost): Command {
  return graceOption(workerCommand("reset"))
    .description("Ends the worker's session of a type, makes another in its place, and prints its id.")
    .option("--config <json>", "its settings (default: those it had)")
    .argument("<type>", "the type")
    .action(
      host.action(async (resourceType: string, flags: EndFlags) => {
        const config = flags.config === undefined ? undefined : jsonObject("--config", flags.config);
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          const request = { workerId: workerOf(flags, io.env), resourceType, config, grace: graceOf(flags) };
          const answer = await client.sessions.reinitializeSession(request, { signal: interrupts.signal });
          const { failure, newSessionId } = answer;
          if (flags.json) await writeJson(io.stdout, messageJson(ReinitializeSessionResponseSchema, answer));
          else if (!failure) await write(io.stdout, `${newSessionId}\n`);
          if (!failure) return EXIT.ok;
          await write(io.stderr, `berth: ${resourceType}: ${failure.message}\n`);
          return EXIT.failed;
        });
      }),
    );
}

function removeCommand(host: CommandHost): Command {
  return graceOption(workerCommand("rm"))
    .description("Ends sessions of a worker, all of them where no type is named, and prints their ids.")
    .argument("[type...]", "only those of these types")
    .action(
      host.action(async (resourceTypes: string[], flags: EndFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          const request = { workerId: workerOf(flags, io.env), resourceTypes, grace: graceOf(flags) };
          const answer = await client.sessions.destroySessions(request, { signal: interrupts.signal });
          if (flags.json) await writeJson(io.stdout, messageJson(DestroySessionsResponseSchema, answer));
          return tellResults(io, answer.results, flags.json === true);
        }),
      ),
    );
}

function graceOption(command: Command): Command {
  return command.option(
    "--grace <duration>",
    "how long running calls may finish, as 5s (default: the service's)",
  );
}

function graceOf({ grace }: EndFlags) {
  return flagValue("--grace", grace, (text) => durationFromMs(parseDuration(text, { minMs: 0 })));
}

/** Prints the ids of what went well, and what went wrong. */
async function tellResults(io: Io, results: readonly SessionResult[], json: boolean): Promise<number> {
  for (const { session, status } of results) {
    if (!json && session && status !== SessionResultStatus.NOT_FOUND) {
      await write(io.stdout, `${visible(session.sessionId)}\n`);
    }
  }
  for (const { resourceType, failure } of results) {
    if (failure) await write(io.stderr, `berth: ${resourceType}: ${visible(failure.message)}\n`);
  }
  return results.some(({ failure }) => failure !== undefined) ? EXIT.failed : EXIT.ok;
}

async function listAll(client: ServiceClient, workerId: string, signal: AbortSignal): Promise<Session[]> {
  const sessions: Session[] = [];
  let pageToken = "";
  do {
    const page = await client.sessions.listSessions({ workerId, pageSize: PAGE_SIZE, pageToken }, { signal });
    sessions.push(...page.sessions);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return sessions;
}

function row(session: Session, now: number): string[] {
  const { sessionId, workerId, resourceType, status, sandboxId, expireTime, activeCalls } = session;
  const expires = expireTime ? `in ${formatDuration(Math.max(0, timestampMs(expireTime) - now))}` : "";
  return [
    visible(sessionId),
    visible(workerId),
    resourceType,
    formatWord(SessionStatus[status]),
    visible(sandboxId),
    activeCalls > 0 ? "in use" : expires,
  ];
}

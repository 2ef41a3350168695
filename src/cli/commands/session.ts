import { create } from "@bufbuild/protobuf";
import { Command } from "commander";
import {
  CreateSessionsResponseSchema,
  DestroySessionsResponseSchema,
  ListSessionsResponseSchema,
  ReinitializeSessionResponseSchema,
  type Session,
  type SessionResult,
  SessionResultStatus,
  SessionSchema,
  SessionStatus,
} from "../../../gen/ts/berth/v1/session_pb.js";
import { complaint, type Tone } from "../colour.ts";
import { examples } from "../examples.ts";
import { EXIT, UsageError } from "../exit.ts";
import {
  addSecretFlags,
  collect,
  durationValue,
  idValue,
  jsonObject,
  keyValues,
  type SecretFlags,
  toolParams,
  type WorkerFlags,
  workerCommand,
  workerOf,
} from "../flags.ts";
import { formatRemaining, formatWord, messageJson } from "../format.ts";
import { type CommandHost, withClient } from "../host.ts";
import { type Io, write, writeJson } from "../io.ts";
import { type ListCall, type ListFlags, type ListKind, listAction, listCommand } from "../list/list.ts";
import { everyPage } from "../list/pages.ts";
import { visible } from "../visible.ts";
import { viewCommand } from "./session-view.ts";

interface CreateFlags extends WorkerFlags, SecretFlags {
  readonly config?: string;
  readonly sandbox?: string;
  readonly workspace?: string;
  readonly ttl?: string;
}

interface EndFlags extends WorkerFlags {
  readonly grace?: string;
}

interface RemoveFlags extends EndFlags {
  readonly force?: boolean;
}

interface ResetFlags extends EndFlags, SecretFlags {
  readonly config?: string;
}

const SECRETS_OF = "what tools return";

/** `berth session …`: manages the sessions of workers. */
export function sessionCommand(host: CommandHost): Command {
  return new Command("session")
    .summary("create, list, show and end sessions")
    .description(
      "Sessions are shells, interpreters and other resources that persist between a worker's calls.",
    )
    .addHelpText(
      "after",
      examples("berth session create python", "berth tool run python:run code='x = 1'", "berth session rm"),
    )
    .addCommand(createCommand(host))
    .addCommand(lsCommand(host))
    .addCommand(viewCommand(host))
    .addCommand(resetCommand(host))
    .addCommand(removeCommand(host));
}

function createCommand(host: CommandHost): Command {
  return addSecretFlags(workerCommand("create"), SECRETS_OF)
    .summary("create sessions and print their ids")
    .description("Creates a session of each type for a worker, and prints their ids.")
    .option("--config <json>", "their settings, as the type's schema says")
    .option("--sandbox <id>", "sandbox to run in (default: one of its own)")
    .option("--workspace <id>", "workspace to mount in its sandbox")
    .option("--ttl <duration>", "how long it lives after its last call (default: the service's)")
    .usage("[options] TYPE... [NAME=TEXT | NAME:=JSON]...")
    .argument(
      "<type...>",
      "bash, python, vm, … (see berth tool ls), and their settings: screen_size:='[1280,800]'",
    )
    .addHelpText(
      "after",
      examples(
        "berth session create bash",
        "berth session create -w ann python --ttl 2h",
        "berth session create bash --secret-env TOKEN=npm-token --redact-secrets",
        "berth session create vm screen_size:='[1280,800]'",
      ),
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
          secrets: secretsOf(flags),
          sandboxId: idValue("--sandbox", flags.sandbox),
          workspaceId: idValue("--workspace", flags.workspace),
          ttl: durationValue("--ttl", flags.ttl),
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

const SESSIONS: ListKind<typeof ListSessionsResponseSchema, typeof SessionSchema> = {
  answer: ListSessionsResponseSchema,
  item: SessionSchema,
  itemsOf: ({ sessions }) => sessions,
  idOf: ({ sessionId }) => visible(sessionId),
  columns: [
    { heading: "ID", text: ({ sessionId }) => visible(sessionId) },
    { heading: "WORKER", text: ({ workerId }) => visible(workerId) },
    { heading: "TYPE", text: ({ resourceType }) => resourceType },
    { heading: "STATUS", text: ({ status }) => formatWord(SessionStatus[status]), tone: toneOf },
    { heading: "SANDBOX", text: ({ sandboxId }) => visible(sandboxId) },
    {
      heading: "EXPIRES",
      text: ({ activeCalls, expireTime }) => (activeCalls > 0 ? "in use" : formatRemaining(expireTime)),
    },
  ],
};

interface LsFlags extends ListFlags {
  readonly worker?: string;
  readonly type?: readonly string[];
}

function lsCommand(host: CommandHost): Command {
  return listCommand("ls")
    .summary("list sessions")
    .description("Lists sessions, newest first.")
    .option("-w, --worker <id>", "only those of this worker")
    .option("--type <type>", "only those of this type, may be repeated", collect)
    .addHelpText("after", examples("berth session ls", "berth session ls -w ann --type bash -q"))
    .action(
      listAction(host, SESSIONS, async (client, { flags, signal }: ListCall<LsFlags>) => {
        const query = { workerId: idValue("--worker", flags.worker), resourceTypes: [...(flags.type ?? [])] };
        const pages = await everyPage((page) =>
          client.sessions.listSessions({ ...query, ...page }, { signal }),
        );
        return create(ListSessionsResponseSchema, { sessions: pages.flatMap(({ sessions }) => sessions) });
      }),
    );
}

function resetCommand(host: CommandHost): Command {
  return addSecretFlags(graceOption(workerCommand("reset")), SECRETS_OF)
    .summary("replace a session with a new one and print its id")
    .description("Ends the worker's session of a type, creates another in its place, and prints its id.")
    .option("--config <json>", "its settings (default: those it had)")
    .argument("<type>", "the type")
    .addHelpText(
      "after",
      examples("berth session reset bash", "berth session reset -w ann python --grace 5s"),
    )
    .action(
      host.action(async (resourceType: string, flags: ResetFlags) => {
        const secrets = secretsOf(flags);
        const config = flags.config === undefined ? undefined : jsonObject("--config", flags.config);
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          const workerId = workerOf(flags, io.env);
          const request = { workerId, resourceType, config, secrets, grace: graceOf(flags) };
          const answer = await client.sessions.reinitializeSession(request, { signal: interrupts.signal });
          const { failure, newSessionId } = answer;
          if (flags.json) await writeJson(io.stdout, messageJson(ReinitializeSessionResponseSchema, answer));
          else if (!failure) await write(io.stdout, `${newSessionId}\n`);
          if (!failure) return EXIT.ok;
          await write(io.stderr, `berth: ${resourceType}: ${visible(failure.message)}\n`);
          return EXIT.failed;
        });
      }),
    );
}

function removeCommand(host: CommandHost): Command {
  return graceOption(workerCommand("rm"))
    .summary("end sessions and print their ids")
    .description(
      "Ends a worker's sessions and prints their ids. Without a type, ends all of them. The exit code is 1 if there is none of a type.",
    )
    .option("-f, --force", "ignore types of which there is none")
    .argument("[type...]", "only those of these types")
    .addHelpText("after", examples("berth session rm", "berth session rm -w ann bash python"))
    .action(
      host.action(async (resourceTypes: string[], flags: RemoveFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          const request = { workerId: workerOf(flags, io.env), resourceTypes, grace: graceOf(flags) };
          const answer = await client.sessions.destroySessions(request, { signal: interrupts.signal });
          if (flags.json) await writeJson(io.stdout, messageJson(DestroySessionsResponseSchema, answer));
          // Without a type, the service names those that others are ending as well.
          const named = resourceTypes.length > 0 && !flags.force;
          const results = answer.results.filter((result) => named || !isMissing(result));
          return tellResults(io, results, flags.json === true);
        }),
      ),
    );
}

function graceOption(command: Command): Command {
  return command.option(
    "--grace <duration>",
    "how long to wait for running calls, such as 5s (default: the service's)",
  );
}

function graceOf({ grace }: EndFlags) {
  return durationValue("--grace", grace, 0);
}

/** Undefined if no flag sets any. */
function secretsOf({ secretEnv, redactSecrets }: SecretFlags) {
  if (secretEnv === undefined && redactSecrets === undefined) return undefined;
  return { env: keyValues("--secret-env", secretEnv), redact: redactSecrets };
}

/** Prints the ids of the successes, and the failures. */
async function tellResults(io: Io, results: readonly SessionResult[], json: boolean): Promise<number> {
  for (const result of results) {
    const { session } = result;
    if (!json && session && !isMissing(result)) await write(io.stdout, `${visible(session.sessionId)}\n`);
  }
  for (const result of results) {
    const { resourceType, failure } = result;
    if (isMissing(result)) {
      const why = `there is no session of the type ${visible(resourceType)}`;
      await write(io.stderr, complaint(io, why, "To list them: berth session ls"));
    }
    if (failure) await write(io.stderr, `berth: ${resourceType}: ${visible(failure.message)}\n`);
  }
  return results.some((result) => result.failure || isMissing(result)) ? EXIT.failed : EXIT.ok;
}

function isMissing({ status }: SessionResult): boolean {
  return status === SessionResultStatus.NOT_FOUND;
}

function toneOf({ status }: Session): Tone {
  return status === SessionStatus.ACTIVE ? "good" : "warning";
}

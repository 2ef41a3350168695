import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import { Command, Option } from "commander";
import {
  GetRunResponseSchema,
  ListRunsResponseSchema,
  type Run,
  type RunEvent,
  RunEventType,
  RunOutcome,
  RunSchema,
  RunState,
  WatchRunResponseSchema,
} from "../../../gen/ts/berth/v1/run_pb.js";
import type { Tone } from "../colour.ts";
import { forEachId } from "../each.ts";
import { examples } from "../examples.ts";
import { EXIT } from "../exit.ts";
import { collect, wordValues } from "../flags.ts";
import { formatAge, formatTable, formatWord, messageJson } from "../format.ts";
import { type ClientFlags, type CommandHost, clientCommand, withClient } from "../host.ts";
import { write, writeJson } from "../io.ts";
import { type ListCall, type ListFlags, type ListKind, listAction, listCommand } from "../list/list.ts";
import { everyPage } from "../list/pages.ts";
import { visible } from "../visible.ts";

/** `berth runs`: manages the runs that the service supervises. */
export function runsCommand(host: CommandHost): Command {
  return new Command("runs")
    .summary("list, show, follow, cancel and delete runs")
    .description(
      "Runs are executions of many steps, done by an agent and supervised by the service. To run one command, see `berth run`.",
    )
    .addHelpText("after", examples("berth runs ls", "berth runs watch RUN"))
    .addCommand(lsCommand(host))
    .addCommand(showCommand(host))
    .addCommand(watchCommand(host))
    .addCommand(cancelCommand(host))
    .addCommand(rmCommand(host));
}

const STATES = {
  idle: RunState.IDLE,
  running: RunState.RUNNING,
  finished: RunState.FINISHED,
  error: RunState.ERROR,
};

const RUNS: ListKind<typeof ListRunsResponseSchema, typeof RunSchema> = {
  answer: ListRunsResponseSchema,
  item: RunSchema,
  itemsOf: ({ runs }) => runs,
  idOf: ({ runId }) => runId,
  columns: [
    { heading: "ID", text: ({ runId }) => runId },
    { heading: "STATE", text: stateOf, tone: toneOf },
    { heading: "STEP", text: ({ currentStep, maxSteps }) => `${currentStep}/${maxSteps}` },
    { heading: "AGE", text: ({ createTime }) => formatAge(createTime) },
    { heading: "SANDBOX", text: ({ sandboxId }) => visible(sandboxId) },
    { heading: "NAME", text: ({ name }) => visible(name) },
  ],
};

interface LsFlags extends ListFlags {
  readonly all?: boolean;
  readonly state?: readonly string[];
}

function lsCommand(host: CommandHost): Command {
  return listCommand("ls")
    .summary("list runs")
    .description("Lists the runs that are RUNNING, newest first; with --all or --state others too.")
    .option("-a, --all", "also those that are not RUNNING")
    .addOption(
      new Option("--state <state>", "only those in this state, may be repeated")
        .choices(Object.keys(STATES))
        .argParser(collect),
    )
    .addHelpText("after", examples("berth runs ls --all", "berth runs ls --state error -q"))
    .action(
      listAction(host, RUNS, async (client, { flags, signal }: ListCall<LsFlags>) => {
        const said = wordValues("--state", flags.state, STATES);
        const states = said.length > 0 || flags.all ? said : [RunState.RUNNING];
        const pages = await everyPage((page) => client.runs.listRuns({ states, ...page }, { signal }));
        return create(ListRunsResponseSchema, { runs: pages.flatMap(({ runs }) => runs) });
      }),
    );
}

function showCommand(host: CommandHost): Command {
  return clientCommand("show")
    .summary("show a run and its steps")
    .description("Shows a run and its newest steps.")
    .argument("<run>", "id of the run")
    .addHelpText("after", examples("berth runs show RUN"))
    .action(
      host.action(async (runId: string, flags: ClientFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const answer = await client.runs.getRun({ runId }, { signal: host.interrupts.signal });
          const { run } = answer;
          const { signal } = host.interrupts;
          if (flags.json) await writeJson(host.io.stdout, messageJson(GetRunResponseSchema, answer), signal);
          else if (run)
            await write(host.io.stdout, formatTable(["WHAT", "VALUE"], details(run)) + stepsOf(run), signal);
          return EXIT.ok;
        }),
      ),
    );
}

function watchCommand(host: CommandHost): Command {
  return clientCommand("watch")
    .summary("follow a run's events until it ends")
    .description("Prints the events of a run until the run ends or is deleted.")
    .argument("<run>", "id of the run")
    .addHelpText("after", examples("berth runs watch RUN"))
    .action(
      host.action(async (runId: string, flags: ClientFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const { signal } = host.interrupts;
          const { run } = await client.runs.getRun({ runId }, { signal });
          // Ends of earlier passes are history: only an end after the newest start ends the watch.
          const since = run?.startTime ? timestampMs(run.startTime) : 0;
          let isNewest = false;
          for await (const response of client.runs.watchRun({ runId }, { signal })) {
            const { item } = response;
            if (item.case === "keepalive") continue;
            if (flags.json)
              await writeJson(host.io.stdout, messageJson(WatchRunResponseSchema, response), signal);
            else if (item.case === "event")
              await write(host.io.stdout, `${formatEvent(item.value)}\n`, signal);
            if (item.case !== "event") continue;
            const { type, time } = item.value;
            // Of the start as well, since its event may be missing, and the clock may be set back after it.
            isNewest ||= time !== undefined && timestampMs(time) >= since;
            if (type === RunEventType.ENDED && isNewest) break;
          }
          return EXIT.ok;
        }),
      ),
    );
}

function cancelCommand(host: CommandHost): Command {
  return clientCommand("cancel")
    .summary("cancel a run")
    .description("Cancels a run, ends its processes, and deletes its sandbox unless the run keeps it.")
    .argument("<run>", "id of the run")
    .addHelpText("after", examples("berth runs cancel RUN"))
    .action(
      host.action(async (runId: string, flags: ClientFlags) =>
        withClient(host, flags, EXIT.failed, async (client) => {
          const { signal } = host.interrupts;
          const { run } = await client.runs.cancelRun({ runId }, { signal });
          if (flags.json) {
            const answer = create(GetRunResponseSchema, run ? { run } : {});
            await writeJson(host.io.stdout, messageJson(GetRunResponseSchema, answer), signal);
          } else if (run) await write(host.io.stdout, `${run.runId} ${stateOf(run)}\n`);
          return EXIT.ok;
        }),
      ),
    );
}

function rmCommand(host: CommandHost): Command {
  return clientCommand("rm")
    .summary("delete runs")
    .description(
      "Deletes runs and their records, and prints the id of each. Runs that are RUNNING are canceled first. The exit code is 1 if one does not exist.",
    )
    .option("-f, --force", "ignore those that do not exist")
    .argument("<run...>", "ids of the runs")
    .addHelpText("after", examples("berth runs rm RUN"))
    .action(
      host.action((runIds: string[], flags: ClientFlags & { readonly force?: boolean }) =>
        forEachId(host, runIds, {
          flags,
          name: "runId",
          failed: { deleted: false },
          act: async (client, runId, signal) => {
            if (!flags.force) await client.runs.getRun({ runId }, { signal });
            await client.runs.deleteRun({ runId }, { signal });
            return { runId, deleted: true };
          },
        }),
      ),
    );
}

function stateOf(run: Run): string {
  const outcome = run.outcome === RunOutcome.UNSPECIFIED ? "" : ` (${formatWord(RunOutcome[run.outcome])})`;
  return formatWord(RunState[run.state]) + outcome;
}

function toneOf({ state }: Run): Tone | undefined {
  if (state === RunState.RUNNING) return "good";
  return state === RunState.ERROR ? "bad" : "muted";
}

function details(run: Run): string[][] {
  return [
    ["id", run.runId],
    ["name", visible(run.name)],
    ["state", stateOf(run)],
    ["message", visible(run.message)],
    ["step", `${run.currentStep} of ${run.maxSteps}`],
    ["sandbox", visible(run.sandboxId)],
    ["lease expires", moment(run.leaseExpireTime)],
    ["created", moment(run.createTime)],
    ["started", moment(run.startTime)],
    ["ended", moment(run.endTime)],
  ].filter(([, value]) => value !== "");
}

function stepsOf(run: Run): string {
  const earlier = (run.steps[0]?.step ?? 1) - 1;
  return [
    ...(earlier > 0 ? [`(${earlier} earlier steps: berth runs watch ${run.runId})\n`] : []),
    ...run.steps.map(
      ({ step, result, stuck }) => `Step ${step}: ${visible(result)}${stuck ? " (stuck)" : ""}\n`,
    ),
  ].join("");
}

function formatEvent(event: RunEvent): string {
  const description =
    event.type === RunEventType.STEP_REPORTED && event.step
      ? `step ${event.step.step}: ${visible(event.step.result)}${event.step.stuck ? " (stuck)" : ""}`
      : event.type === RunEventType.ENDED
        ? `ended ${formatWord(RunOutcome[event.outcome])}: ${visible(event.message)}`
        : formatWord(RunEventType[event.type]);
  return `${moment(event.time)} ${description}`;
}

function moment(time: Timestamp | undefined): string {
  return time ? new Date(timestampMs(time)).toISOString() : "";
}

import { create } from "@bufbuild/protobuf";
import { type Command, Option } from "commander";
import {
  IsolationLevel,
  ListSandboxesResponseSchema,
  type Sandbox,
  SandboxSchema,
  SandboxState,
  TerminationCause,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import type { Tone } from "../colour.ts";
import { examples } from "../examples.ts";
import { collect, keyValues, wordValues } from "../flags.ts";
import { formatAge, formatRemaining, formatWord } from "../format.ts";
import type { CommandHost } from "../host.ts";
import { type ListCall, type ListFlags, type ListKind, listAction, listCommand } from "../list/list.ts";
import { everyPage } from "../list/pages.ts";

const STATES = {
  creating: SandboxState.CREATING,
  running: SandboxState.RUNNING,
  paused: SandboxState.PAUSED,
  deleting: SandboxState.DELETING,
  terminated: SandboxState.TERMINATED,
};

interface LsFlags extends ListFlags {
  readonly all?: boolean;
  readonly label?: readonly string[];
  readonly state?: readonly string[];
}

const SANDBOXES: ListKind<typeof ListSandboxesResponseSchema, typeof SandboxSchema> = {
  answer: ListSandboxesResponseSchema,
  item: SandboxSchema,
  itemsOf: ({ sandboxes }) => sandboxes,
  idOf: ({ sandboxId }) => sandboxId,
  columns: [
    { heading: "ID", text: ({ sandboxId }) => sandboxId },
    { heading: "STATE", text: stateOf, tone: toneOf },
    { heading: "IMAGE", text: imageOf },
    { heading: "AGE", text: ({ createTime }) => formatAge(createTime) },
    { heading: "EXPIRES", text: expiryOf },
    { heading: "ACTIVE", text: ({ activeOperations }) => String(activeOperations) },
  ],
};

/** `berth ls`: lists sandboxes. */
export function lsCommand(host: CommandHost): Command {
  return listCommand("ls")
    .summary("list sandboxes")
    .description("Lists sandboxes, newest first.")
    .option("-a, --all", "also those that ended in the last 24 hours")
    .option("-l, --label <KEY=VALUE>", "only those with this label, may be repeated", collect)
    .addOption(
      new Option("--state <state>", "only those in this state, may be repeated")
        .choices(Object.keys(STATES))
        .argParser(collect),
    )
    .addHelpText(
      "after",
      examples(
        "berth ls --all",
        "berth ls -q -l team=red",
        "berth ls --state paused --format '{{.ID}} {{index .spec.labels \"team\"}}'",
        "berth rm $(berth ls -q)",
      ),
    )
    .action(
      listAction(host, SANDBOXES, async (client, { flags, signal }: ListCall<LsFlags>) => {
        const query = {
          labelSelector: keyValues("--label", flags.label),
          states: wordValues("--state", flags.state, STATES),
          showTerminated: flags.all === true,
        };
        const pages = await everyPage((page) =>
          client.sandboxes.listSandboxes({ ...query, ...page }, { signal }),
        );
        return create(ListSandboxesResponseSchema, {
          sandboxes: pages.flatMap(({ sandboxes }) => sandboxes),
        });
      }),
    );
}

function stateOf({ state, termination }: Sandbox): string {
  const cause = termination ? ` (${formatWord(TerminationCause[termination.cause])})` : "";
  return formatWord(SandboxState[state]) + cause;
}

function toneOf({ state }: Sandbox): Tone | undefined {
  if (state === SandboxState.RUNNING) return "good";
  return state === SandboxState.TERMINATED ? "muted" : "warning";
}

/** The image that it runs. Sandboxes of bubblewrap, the only ones isolated by namespaces, have none. */
function imageOf({ isolation, spec }: Sandbox): string {
  return isolation === IsolationLevel.NAMESPACE ? "-" : (spec?.image ?? "");
}

function expiryOf({ termination, expireTime }: Sandbox): string {
  return termination ? "" : formatRemaining(expireTime) || "not while in use";
}

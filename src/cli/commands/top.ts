import { setTimeout as sleep } from "node:timers/promises";
import { enumToJson } from "@bufbuild/protobuf";
import { durationMs, timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import {
  type ResourceUsage,
  ResourceUsageSchema,
  type Sandbox,
  SandboxState,
  SandboxStateSchema,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { forEachConcurrently } from "../../base/async.ts";
import type { ServiceClient } from "../client.ts";
import { complaint, type Tone } from "../colour.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed, UsageError } from "../exit.ts";
import { callFailure, reasonOf } from "../failure.ts";
import { collect, keyValues } from "../flags.ts";
import { formatSize, formatWord, messageJson } from "../format.ts";
import { type CommandHost, withClient } from "../host.ts";
import { write } from "../io.ts";
import { type ListFlags, type ListForm, listCommand, printerFor } from "../list/list.ts";
import { everyPage } from "../list/pages.ts";

/** Between the two measurements of a sandbox. */
const INTERVAL_MS = 1_000;
/** Memory above this part of its limit is marked. */
const NEARLY_FULL = 0.9;

const GONE: ReadonlySet<ErrorReason | undefined> = new Set([
  ErrorReason.SANDBOX_NOT_FOUND,
  ErrorReason.SANDBOX_NOT_RUNNING,
  ErrorReason.SANDBOX_REPLACED,
  ErrorReason.SANDBOX_TERMINATED,
  ErrorReason.SANDBOX_DELETED,
]);

interface TopFlags extends ListFlags {
  readonly label?: readonly string[];
}

/** What a sandbox uses. */
interface Row {
  readonly sandbox: Sandbox;
  readonly usage: ResourceUsage;
  /** Of one core; undefined if the service's clock did not advance between the measurements. */
  readonly cpuPercent: number | undefined;
}

const ROWS: ListForm<Row> = {
  schema: {
    named: [
      ...["sandboxId", "state", "cpuPercent"],
      ...ResourceUsageSchema.fields.map(({ jsonName }) => jsonName),
    ],
  },
  jsonOf: ({ sandbox: { sandboxId, state }, usage, cpuPercent }) => ({
    sandboxId,
    state: enumToJson(SandboxStateSchema, state),
    ...(cpuPercent !== undefined && { cpuPercent }),
    ...(messageJson(ResourceUsageSchema, usage) as object),
  }),
  idOf: ({ sandbox }) => sandbox.sandboxId,
  columns: [
    { heading: "ID", text: ({ sandbox }) => sandbox.sandboxId },
    {
      heading: "STATE",
      text: ({ sandbox }) => formatWord(SandboxState[sandbox.state]),
      tone: ({ sandbox }) => (sandbox.state === SandboxState.RUNNING ? "good" : "warning"),
    },
    {
      heading: "CPU",
      text: ({ cpuPercent }) => (cpuPercent === undefined ? "-" : `${cpuPercent.toFixed(1)}%`),
    },
    { heading: "MEMORY", text: memoryOf, tone: memoryToneOf },
    {
      heading: "PIDS",
      text: ({ usage: { processes, processLimit } }) =>
        processLimit === undefined ? String(processes) : `${processes} / ${processLimit}`,
    },
  ],
};

/** `berth top`: shows what sandboxes use. */
export function topCommand(host: CommandHost): Command {
  return listCommand("top")
    .summary("show the CPU, memory and processes that sandboxes use")
    .description(
      "Measures running and paused sandboxes twice, a second apart, and lists what they use and may use, highest CPU first. " +
        "100% is one core. A measurement is not a use: it does not keep a sandbox alive.",
    )
    .option("-l, --label <KEY=VALUE>", "only those with this label, may be repeated", collect)
    .argument("[sandbox...]", "ids of the sandboxes (default: all)")
    .addHelpText(
      "after",
      examples(
        "berth top",
        "berth top -l team=red",
        "berth top --format '{{.ID}} {{.cpuPercent}} {{.memoryBytes}}' SANDBOX",
      ),
    )
    .action(
      host.action(async (ids: string[], flags: TopFlags) => {
        const print = printerFor(host, flags, ROWS);
        const labels = keyValues("--label", flags.label);
        if (ids.length > 0 && flags.label !== undefined)
          throw new UsageError("--label and ids cannot be used together: each says which sandboxes");
        return withClient(host, flags, EXIT.failed, async (client) => {
          const top = new Top(client, host.interrupts.signal);
          const rows = await (ids.length > 0 ? top.named([...new Set(ids)]) : top.all(labels));
          await print(rows, () => ({ sandboxes: rows.map(ROWS.jsonOf) }));
          for (const { message, hint } of top.failures)
            await write(host.io.stderr, complaint(host.io, message, hint));
          return top.failures.length === 0 ? EXIT.ok : EXIT.failed;
        });
      }),
    );
}

/** Measures sandboxes. What fails for one of them is reported, and does not keep the others from being shown. */
class Top {
  readonly #client: ServiceClient;
  readonly #signal: AbortSignal;
  /** By message: if many fail for the same reason, it is printed once. */
  readonly #failures = new Map<string, Failed>();

  constructor(client: ServiceClient, signal: AbortSignal) {
    this.#client = client;
    this.#signal = signal;
  }

  get failures(): readonly Failed[] {
    return [...this.#failures.values()];
  }

  /** Measures all sandboxes with these labels. One that goes away meanwhile is left out. */
  async all(labelSelector: Record<string, string>): Promise<Row[]> {
    const query = { labelSelector, states: [SandboxState.RUNNING, SandboxState.PAUSED] };
    const signal = this.#signal;
    const pages = await everyPage((page) =>
      this.#client.sandboxes.listSandboxes({ ...query, ...page }, { signal }),
    );
    const sandboxes = pages.flatMap((page) => page.sandboxes);
    return this.#measure(sandboxes, await this.#usages(sandboxes, true));
  }

  /** Measures the named ones. One that cannot be measured is a failure; one that goes away later is left out. */
  async named(ids: readonly string[]): Promise<Row[]> {
    const signal = this.#signal;
    const sandboxes: Sandbox[] = [];
    for (const sandboxId of ids) {
      const call = this.#client.sandboxes.getSandbox({ sandboxId }, { signal });
      const sandbox = (await this.#attempt(call, false))?.sandbox;
      if (sandbox) sandboxes.push(sandbox);
    }
    return this.#measure(sandboxes, await this.#usages(sandboxes, false));
  }

  async #measure(sandboxes: readonly Sandbox[], before: ReadonlyMap<Sandbox, ResourceUsage>): Promise<Row[]> {
    if (before.size > 0) await sleep(INTERVAL_MS, undefined, { signal: this.#signal });
    const after = await this.#usages(
      sandboxes.filter((sandbox) => before.has(sandbox)),
      true,
    );
    return [...after]
      .map(([sandbox, usage]) => ({ sandbox, usage, cpuPercent: cpuPercent(before.get(sandbox), usage) }))
      .sort(
        (one, other) =>
          (other.cpuPercent ?? 0) - (one.cpuPercent ?? 0) ||
          Number(other.usage.memoryBytes - one.usage.memoryBytes),
      );
  }

  async #usages(
    sandboxes: readonly Sandbox[],
    mayBeGone: boolean,
  ): Promise<ReadonlyMap<Sandbox, ResourceUsage>> {
    const found = new Map<Sandbox, ResourceUsage>();
    await forEachConcurrently(sandboxes, async (sandbox) => {
      const { sandboxId, generation } = sandbox;
      const call = { signal: this.#signal };
      const answer = this.#client.sandboxes.getSandboxUsage({ sandboxId, generation }, call);
      const usage = (await this.#attempt(answer, mayBeGone))?.usage;
      if (usage) found.set(sandbox, usage);
    });
    return found;
  }

  /** What a call about one sandbox returns; undefined if it failed for a reason of that sandbox. */
  async #attempt<T>(call: Promise<T>, mayBeGone: boolean): Promise<T | undefined> {
    try {
      return await call;
    } catch (error) {
      const reason = reasonOf(error);
      if (this.#signal.aborted || reason === undefined) throw error;
      if (mayBeGone && GONE.has(reason)) return undefined;
      const failure = callFailure(error, this.#client.address, EXIT.failed);
      if (!(failure instanceof Failed)) throw error;
      this.#failures.set(failure.message, failure);
      return undefined;
    }
  }
}

function cpuPercent(before: ResourceUsage | undefined, after: ResourceUsage): number | undefined {
  const passedMs = timeOf(after) - timeOf(before);
  if (!(passedMs > 0)) return undefined;
  // Without control groups, the time of processes that ended is no longer counted.
  const usedMs = Math.max(0, cpuMsOf(after) - cpuMsOf(before));
  return Math.round((usedMs / passedMs) * 1000) / 10;
}

function timeOf(usage: ResourceUsage | undefined): number {
  return usage?.measureTime ? timestampMs(usage.measureTime) : Number.NaN;
}

function cpuMsOf(usage: ResourceUsage | undefined): number {
  return usage?.cpuTime ? durationMs(usage.cpuTime) : 0;
}

function memoryOf({ usage: { memoryBytes, memoryLimitBytes } }: Row): string {
  const used = formatSize(Number(memoryBytes));
  return memoryLimitBytes === undefined ? used : `${used} / ${formatSize(Number(memoryLimitBytes))}`;
}

function memoryToneOf({ usage: { memoryBytes, memoryLimitBytes } }: Row): Tone | undefined {
  return Number(memoryBytes) > NEARLY_FULL * Number(memoryLimitBytes ?? Infinity) ? "bad" : undefined;
}

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type CreateSandboxRequest,
  type DeleteSandboxRequest,
  type GetSandboxRequest,
  type GetSandboxUsageRequest,
  type GetStatsRequest,
  type GetStatsResponseSchema,
  type KeepAliveSandboxRequest,
  type ListSandboxesRequest,
  type PauseSandboxRequest,
  type ResourceUsageSchema,
  type ResumeSandboxRequest,
  type Sandbox,
  type SandboxService,
  type UpdateSandboxRequest,
  WaitReason,
  type WatchEventsRequest,
  type WatchEventsResponseSchema,
} from "../../gen/ts/berth/v1/sandbox_pb.js";
import { invalidArgument } from "../base/errors.ts";
import type { EngineCapabilities } from "../engine/port.ts";
import type { TranscriptBudget } from "../processes/transcript-budget.ts";
import type { EngineMonitor } from "../sandboxes/engine-monitor.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { SandboxEventBody, SandboxSpec } from "../sandboxes/sandbox.ts";
import type { SandboxDefaults } from "../sandboxes/spec.ts";
import { QUOTA_NAMES, type QuotaName, type TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import { ownerOf, seesWholeService } from "../server/call.ts";
import type { EventLog } from "../state/event-log.ts";
import type { RequestLog } from "../state/request-log.ts";
import type { WorkspaceQuota } from "../workspaces/quota.ts";
import {
  fromWireSpec,
  fromWireStates,
  toWireEvent,
  toWireIsolation,
  toWireSandbox,
  toWireUsage,
} from "./convert/sandbox.ts";
import { toWireSharedUsage } from "./convert/workspace.ts";
import { withKeepalive } from "./stream.ts";
import {
  durationToMs,
  integer,
  labels,
  msToDuration,
  msToTimestamp,
  optionalCallerId,
  positive,
  requestKey,
  sandboxName,
} from "./validate/fields.ts";
import { nextPageToken, pageSlice } from "./validate/page.ts";

export interface SandboxHandlerParts {
  readonly sandboxes: SandboxManager;
  readonly events: EventLog<SandboxEventBody>;
  readonly requests: RequestLog;
  readonly monitor: EngineMonitor;
  readonly transcripts: TranscriptBudget;
  readonly quotas: TenantQuotas;
  readonly quota: WorkspaceQuota;
  readonly engineName: string;
  readonly defaults: SandboxDefaults;
  readonly keepaliveMs: number;
  /** The version of the program. */
  readonly version: string;
}

const CAPABILITY_NAMES: Record<keyof EngineCapabilities, string> = {
  pause: "pause",
  memoryLimit: "memory_limit",
  cpuLimit: "cpu_limit",
  pidsLimit: "pids_limit",
  systemCallFilter: "system_call_filter",
  diskLimit: "disk_limit",
  egress: "egress",
  egressDomains: "egress_domains",
};

/** The handlers of `berth.v1.SandboxService`. They validate, convert and delegate. */
export class SandboxHandler implements ServiceImpl<typeof SandboxService> {
  readonly #parts: SandboxHandlerParts;

  constructor(parts: SandboxHandlerParts) {
    this.#parts = parts;
  }

  async createSandbox(request: CreateSandboxRequest, context: HandlerContext): Promise<{ sandbox: Sandbox }> {
    const { sandboxes, requests } = this.#parts;
    const sandboxId = optionalCallerId("sandbox_id", request.sandboxId);
    const spec = fromWireSpec(request.spec);
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, (signal, progress) =>
      sandboxes.create(ownerOf(context), spec, { sandboxId, signal, progress }),
    );
    return { sandbox: toWireSandbox(view) };
  }

  getSandbox(request: GetSandboxRequest, context: HandlerContext): { sandbox: Sandbox } {
    return { sandbox: toWireSandbox(this.#parts.sandboxes.get(sandboxName(context, request))) };
  }

  listSandboxes(
    request: ListSandboxesRequest,
    context: HandlerContext,
  ): { sandboxes: Sandbox[]; nextPageToken: string } {
    const states = fromWireStates(request.states, request.showTerminated);
    const filter = { labels: labels("label_selector", request.labelSelector), states };
    const { items, next } = this.#parts.sandboxes.list(ownerOf(context), filter, pageSlice(request));
    return { sandboxes: items.map(toWireSandbox), nextPageToken: nextPageToken(next) };
  }

  async getSandboxUsage(
    request: GetSandboxUsageRequest,
    context: HandlerContext,
  ): Promise<{ usage: MessageInitShape<typeof ResourceUsageSchema> }> {
    const used = await this.#parts.sandboxes.usage(sandboxName(context, request), context.signal);
    return { usage: toWireUsage(used) };
  }

  async updateSandbox(request: UpdateSandboxRequest, context: HandlerContext): Promise<{ sandbox: Sandbox }> {
    const { sandboxes, requests } = this.#parts;
    const change = this.#fromMask(request);
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, async () =>
      sandboxes.update(sandboxName(context, request), change),
    );
    return { sandbox: toWireSandbox(view) };
  }

  async keepAliveSandbox(
    request: KeepAliveSandboxRequest,
    context: HandlerContext,
  ): Promise<{ sandbox: Sandbox }> {
    const { sandboxes, requests } = this.#parts;
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, async () =>
      sandboxes.keepAlive(sandboxName(context, request)),
    );
    return { sandbox: toWireSandbox(view) };
  }

  async pauseSandbox(request: PauseSandboxRequest, context: HandlerContext): Promise<{ sandbox: Sandbox }> {
    const { sandboxes, requests } = this.#parts;
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, (signal) =>
      sandboxes.pause(sandboxName(context, request), signal),
    );
    return { sandbox: toWireSandbox(view) };
  }

  async resumeSandbox(request: ResumeSandboxRequest, context: HandlerContext): Promise<{ sandbox: Sandbox }> {
    const { sandboxes, requests } = this.#parts;
    const key = requestKey(context, request);
    const view = await requests.run(key, context.signal, (signal) =>
      sandboxes.resume(sandboxName(context, request), signal),
    );
    return { sandbox: toWireSandbox(view) };
  }

  async deleteSandbox(
    request: DeleteSandboxRequest,
    context: HandlerContext,
  ): Promise<Record<string, never>> {
    const { sandboxes, requests } = this.#parts;
    const name = sandboxName(context, request);
    const graceMs = durationToMs("grace", request.grace);
    const key = requestKey(context, request);
    await requests.run(key, context.signal, (_signal, progress) =>
      sandboxes.delete(name, graceMs, undefined, progress),
    );
    return {};
  }

  async getStats(
    request: GetStatsRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof GetStatsResponseSchema>> {
    const shared = await this.#parts.quota.sharedUsage(ownerOf(context), {
      measure: request.measureSharedDirectory,
      signal: context.signal,
    });
    const { sandboxes, monitor, engineName } = this.#parts;
    const whole = seesWholeService(context);
    const stats = sandboxes.stats(ownerOf(context), whole);
    const { capabilities, version, isolation } = monitor.info;
    const names = Object.keys(CAPABILITY_NAMES) as (keyof EngineCapabilities)[];
    return {
      totalSandboxes: stats.totalSandboxes,
      activeOperations: stats.activeOperations,
      maxSandboxes: stats.maxSandboxes,
      idleTimeout: msToDuration(stats.idleTimeoutMs),
      cleanupInterval: msToDuration(stats.cleanupIntervalMs),
      isShuttingDown: stats.isShuttingDown,
      sandboxes: stats.sandboxes.map(({ sandboxId, lastUsedMs, isActive }) => ({
        sandboxId,
        lastUsed: msToTimestamp(lastUsedMs),
        isActive,
      })),
      warmPools: stats.warmPools.map((pool) => ({ ...pool })),
      engine: {
        name: engineName,
        version,
        isolation: toWireIsolation(isolation),
        capabilities: names.filter((name) => capabilities[name]).map((name) => CAPABILITY_NAMES[name]),
        available: monitor.available,
      },
      ...this.#storage(ownerOf(context), whole),
      sharedDirectory: shared && toWireSharedUsage(shared),
      serverVersion: this.#parts.version,
      tenantQuotas: this.#tenantQuotas(ownerOf(context)),
      waitingSandboxes: stats.waitingSandboxes,
      waiting: stats.waiting.map(({ reason, sinceMs, ...rest }) => ({
        ...rest,
        reason: WaitReason[reason],
        since: msToTimestamp(sinceMs),
      })),
    };
  }

  #tenantQuotas(owner: string) {
    const { quotas, transcripts, quota: workspaceQuota } = this.#parts;
    const limits = quotas.quotaOf(owner);
    const used: Readonly<Record<QuotaName, number>> = {
      ...quotas.usage(owner),
      createsPerSecond: 0,
      transcriptBytes: transcripts.ownerBytes(owner),
      workspaceBytes: workspaceQuota.ownerBytes(owner),
    };
    return (Object.keys(QUOTA_NAMES) as QuotaName[]).map((name) => {
      const limit = limits[name];
      return { quota: QUOTA_NAMES[name], used: BigInt(used[name]), ...(limit !== undefined && { limit }) };
    });
  }

  /** Disk space of the output of commands, and of the answers kept for retries. */
  #storage(owner: string, whole: boolean) {
    const { transcripts, requests } = this.#parts;
    const transcriptBytes = BigInt(transcripts.ownerBytes(owner));
    const answerBytes = BigInt(requests.answerBytes(owner));
    return {
      transcripts: {
        usedBytes: whole ? BigInt(transcripts.usage.bytes) : transcriptBytes,
        memoryBytes: whole ? BigInt(transcripts.usage.memoryBytes) : 0n,
        limitBytes: BigInt(transcripts.bounds.bytes),
        ownerUsedBytes: transcriptBytes,
        ownerLimitBytes: BigInt(transcripts.ownerLimit(owner)),
      },
      answers: {
        usedBytes: whole ? BigInt(requests.answerBytes()) : answerBytes,
        limitBytes: BigInt(requests.bounds.bytes),
        ownerUsedBytes: answerBytes,
        ownerLimitBytes: BigInt(requests.bounds.ownerBytes),
      },
    };
  }

  async *watchEvents(
    request: WatchEventsRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof WatchEventsResponseSchema>> {
    const filter = {
      owner: ownerOf(context),
      sandboxId: optionalCallerId("sandbox_id", request.sandboxId),
      afterSequence: integer("after_sequence", request.afterSequence, { min: 0 }),
    };
    const items = this.#parts.events.watch(filter, context.signal);
    // At once if there is nothing to send: a client that reconnects has to know that it succeeded.
    for await (const item of withKeepalive(items, this.#parts.keepaliveMs, 0)) {
      if (item === undefined) yield { item: { case: "keepalive", value: {} } };
      else if (item.type === "event") yield { item: { case: "event", value: toWireEvent(item.event) } };
      else {
        yield {
          item: { case: "trimmed", value: { fromSequence: BigInt(item.from), toSequence: BigInt(item.to) } },
        };
      }
    }
  }

  #fromMask(
    request: UpdateSandboxRequest,
  ): Partial<Pick<SandboxSpec, "labels" | "idleTimeoutMs" | "maxLifetimeMs">> {
    const paths = request.updateMask?.paths ?? [];
    if (paths.length === 0)
      throw invalidArgument("update_mask", "it is empty. Name labels, idle_timeout or max_lifetime.");
    const { defaults } = this.#parts;
    const change: {
      labels?: Readonly<Record<string, string>>;
      idleTimeoutMs?: number;
      maxLifetimeMs?: number;
    } = {};
    for (const path of paths) {
      switch (path) {
        case "labels":
          change.labels = labels("labels", request.labels);
          break;
        case "idle_timeout":
          change.idleTimeoutMs =
            positive(path, durationToMs("idle_timeout", request.idleTimeout)) ?? defaults.idleTimeoutMs;
          break;
        case "max_lifetime":
          change.maxLifetimeMs =
            positive(path, durationToMs("max_lifetime", request.maxLifetime)) ?? defaults.maxLifetimeMs;
          break;
        default:
          throw invalidArgument(
            "update_mask",
            `${JSON.stringify(path)} cannot be changed; only labels, idle_timeout and max_lifetime can.`,
          );
      }
    }
    return change;
  }
}

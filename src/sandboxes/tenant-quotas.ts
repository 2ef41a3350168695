import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Resources } from "../engine/port.ts";
import type { Reservation } from "./capacity.ts";

/** How much one tenant may have at once. Unset fields: only the service's own limits apply. */
export interface TenantQuota {
  /** Live sandboxes, including those being created or removed. */
  readonly sandboxes?: number | undefined;
  /** The sum of its sandboxes' memory limits, in bytes. */
  readonly memoryBytes?: number | undefined;
  /** The sum of its sandboxes' CPU limits, in thousandths of a CPU. */
  readonly cpuMillis?: number | undefined;
  /** The sum of its sandboxes' pids limits. */
  readonly pids?: number | undefined;
  /** Commands that run at the same time in all its sandboxes. */
  readonly execs?: number | undefined;
  /** Sessions, including those being created or ended, without those of one call. */
  readonly sessions?: number | undefined;
  /** Sandboxes that it may create per second on average, and at once as a burst. */
  readonly createsPerSecond?: number | undefined;
  /** Stored output of its commands, in bytes. Beyond it the oldest output is dropped. */
  readonly transcriptBytes?: number | undefined;
  /** Its workspaces and its shared directory together, as last measured, in bytes. */
  readonly workspaceBytes?: number | undefined;
}

/** The name of a quota. */
export type QuotaName = keyof TenantQuota;

/** The names of quotas on the wire, in error metadata and in statistics. */
export const QUOTA_NAMES: Readonly<Record<QuotaName, string>> = {
  sandboxes: "sandboxes",
  memoryBytes: "memory_bytes",
  cpuMillis: "cpu_millis",
  pids: "pids",
  execs: "execs",
  sessions: "sessions",
  createsPerSecond: "creates_per_second",
  transcriptBytes: "transcript_bytes",
  workspaceBytes: "workspace_bytes",
};

/** How much of each quota a reservation uses. */
type Amounts = Partial<Record<CountedQuota, number>>;
/** The quotas whose usage is a sum of reservations. */
type CountedQuota = "sandboxes" | "memoryBytes" | "cpuMillis" | "pids" | "execs" | "sessions";

/** A tenant's usage of each quota that is a sum of reservations. */
export type TenantUsage = Readonly<Record<CountedQuota, number>>;

const HOW_TO_FREE: Readonly<Record<CountedQuota | "workspaceBytes", string>> = {
  sandboxes: "Delete one",
  memoryBytes: "Ask for less memory, delete a sandbox",
  cpuMillis: "Ask for less CPU, delete a sandbox",
  pids: "Ask for a lower pids_limit, delete a sandbox",
  execs: "Wait for a command to end",
  sessions: "Destroy one",
  workspaceBytes: "Delete files in a running sandbox, clean up workspaces with force",
};
/** When to retry a command that exceeded the quota. Short, because most commands are. */
const RETRY_EXEC_MS = 100;

/**
 * Enforces the tenants' quotas. Everything is reserved in one step before it is created, and released when it is gone.
 * Quotas are looked up at each reservation, so a changed quota applies from the next one on, and takes nothing away.
 */
export class TenantQuotas {
  readonly #quotaOf: (owner: string) => TenantQuota;
  readonly #clock: Clock;
  readonly #tenants = new Map<string, Ledger>();

  /** @param quotaOf returns a tenant's quota. Default: no tenant has one. */
  constructor(clock: Clock, quotaOf: (owner: string) => TenantQuota = () => ({})) {
    this.#clock = clock;
    this.#quotaOf = quotaOf;
  }

  /** Reserves a sandbox and its resources. @throws `TENANT_QUOTA` */
  reserveSandbox(owner: string, resources: Resources): Reservation {
    const amounts = amountsOf(resources);
    this.#assertRoom(owner, amounts);
    this.#spendCreate(owner);
    return this.#take(owner, amounts);
  }

  /** Counts a sandbox that already exists, even beyond the quotas. */
  recoverSandbox(owner: string, resources: Resources): Reservation {
    return this.#take(owner, amountsOf(resources));
  }

  /** Reserves a running command. @throws `TENANT_QUOTA` */
  reserveExec(owner: string): Reservation {
    this.#assertRoom(owner, { execs: 1 });
    return this.recoverExec(owner);
  }

  /** Counts a command that already runs, even beyond the quota. */
  recoverExec(owner: string): Reservation {
    return this.#take(owner, { execs: 1 });
  }

  /** Reserves a session. @throws `TENANT_QUOTA` */
  reserveSession(owner: string): Reservation {
    this.#assertRoom(owner, { sessions: 1 });
    return this.recoverSession(owner);
  }

  /** Counts a session that already exists, even beyond the quota. */
  recoverSession(owner: string): Reservation {
    return this.#take(owner, { sessions: 1 });
  }

  /** A tenant's quota. */
  quotaOf(owner: string): TenantQuota {
    return this.#quotaOf(owner);
  }

  /** A tenant's usage of each quota that is a sum of reservations. */
  usage(owner: string): TenantUsage {
    return { ...(this.#tenants.get(owner)?.used ?? NOTHING) };
  }

  /** The usage of each tenant that had anything in this run. */
  usages(): ReadonlyMap<string, TenantUsage> {
    return new Map(Array.from(this.#tenants, ([tenant, { used }]) => [tenant, used]));
  }

  #assertRoom(owner: string, amounts: Amounts): void {
    const quota = this.#quotaOf(owner);
    const used = this.#tenants.get(owner)?.used ?? NOTHING;
    for (const [name, amount] of entries(amounts)) {
      const limit = quota[name];
      if (limit === undefined || used[name] + amount <= limit) continue;
      throw exceeded(
        name,
        { limit, used: used[name], asked: amount },
        howToFree(name),
        name === "execs" ? RETRY_EXEC_MS : undefined,
      );
    }
  }

  /**
   * Checks that `asked` more bytes fit into an owner's quota for directories, of which `used` bytes are in use. @throws
   * `TENANT_QUOTA`
   */
  assertWorkspaceRoom(owner: string, used: number, asked: number): void {
    const limit = this.#quotaOf(owner).workspaceBytes;
    if (limit === undefined || used + asked <= limit) return;
    throw exceeded("workspaceBytes", { limit, used, asked }, howToFree("workspaceBytes"), undefined);
  }

  /** Takes a token from the bucket, which holds the tokens of one second, but at least one. */
  #spendCreate(owner: string): void {
    const { createsPerSecond: rate } = this.#quotaOf(owner);
    if (rate === undefined) return;
    const ledger = this.#ledger(owner);
    const now = this.#clock.monotonicMs();
    const size = Math.max(1, rate);
    const refilled = Math.min(size, (ledger.creates ?? size) + ((now - ledger.refilledAt) / 1000) * rate);
    ledger.creates = refilled;
    ledger.refilledAt = now;
    if (refilled < 1) {
      const waitMs = Math.ceil(((1 - refilled) / rate) * 1000);
      const facts = { limit: rate, used: rate, asked: 1 };
      throw exceeded("createsPerSecond", facts, `Try again in ${waitMs} ms.`, waitMs);
    }
    ledger.creates = refilled - 1;
  }

  #take(owner: string, amounts: Amounts): Reservation {
    const { used } = this.#ledger(owner);
    for (const [name, amount] of entries(amounts)) used[name] += amount;
    let held = true;
    return {
      release: () => {
        if (!held) return;
        held = false;
        for (const [name, amount] of entries(amounts)) used[name] -= amount;
      },
    };
  }

  /** One for each tenant seen in this run of the service. The tokens file limits their number. */
  #ledger(owner: string): Ledger {
    let ledger = this.#tenants.get(owner);
    if (ledger === undefined) {
      ledger = { used: { ...NOTHING }, creates: undefined, refilledAt: 0 };
      this.#tenants.set(owner, ledger);
    }
    return ledger;
  }
}

interface Ledger {
  readonly used: Record<CountedQuota, number>;
  /** Number of creates in the bucket at `refilledAt`, on the monotonic clock; undefined: it is full. */
  creates: number | undefined;
  refilledAt: number;
}

const NOTHING: Readonly<Record<CountedQuota, number>> = {
  sandboxes: 0,
  memoryBytes: 0,
  cpuMillis: 0,
  pids: 0,
  execs: 0,
  sessions: 0,
};

function amountsOf({ memoryBytes, cpuMillis, pidsLimit }: Resources): Amounts {
  return { sandboxes: 1, memoryBytes, cpuMillis, pids: pidsLimit };
}

function entries(amounts: Amounts): [CountedQuota, number][] {
  return Object.entries(amounts) as [CountedQuota, number][];
}

function howToFree(name: keyof typeof HOW_TO_FREE): string {
  return `${HOW_TO_FREE[name]}, or ask the operator for a larger quota.`;
}

function exceeded(
  name: QuotaName,
  { limit, used, asked }: { readonly limit: number; readonly used: number; readonly asked: number },
  help: string,
  retryAfterMs: number | undefined,
): BerthError {
  const quota = QUOTA_NAMES[name];
  return new BerthError(
    "TENANT_QUOTA",
    `The tenant has reached its quota of ${quota}: ${limit}, of which ${used} in use and ${asked} asked for. ${help}`,
    {
      metadata: { quota, limit: String(limit), used: String(used), asked: String(asked) },
      ...(retryAfterMs !== undefined && { retryAfterMs }),
    },
  );
}

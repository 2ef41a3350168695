import { createHash, randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { V1Lease } from "@kubernetes/client-node";
import { rest } from "../../base/async.ts";
import { BerthError, throwIfAborted } from "../../base/errors.ts";
import { randomBase32 } from "../../base/ids.ts";
import type { Logger } from "../../base/logger.ts";
import type { Api } from "./api.ts";
import { isRefusal } from "./errors.ts";
import { INSTANCE_LABEL, instanceLabel } from "./pod.ts";

const GROUP = "apis/coordination.k8s.io/v1";
/** Identifies one run of a service. It lets a run notice that a later run of the same service has taken its lease. */
const RUN_ANNOTATION = "berth.dev/run";

/** Name of the file in the data directory that contains the holder's id. */
const HOLDER_FILE = "holder";

/** How long a lease is valid without a renewal. */
export const LEASE_SECONDS = 60;
const RENEW_MS = 10_000;
/** After this long without a renewal the holder stops: another service may take the lease soon. */
const HOLD_MS = 45_000;
/** An API server that has to create a hundred pods at once may take longer than ten seconds for any call. */
const CALL_TIMEOUT_MS = 20_000;
const POLL_MS = 1_000;
const PROGRESS_MS = 5_000;

/** What {@link InstanceLease.acquire} needs. */
interface LeaseOptions {
  readonly api: Api;
  readonly instance: string;
  /** The holder's name. It is the same for all runs of one service, of which only one runs at a time. */
  readonly holder: string;
  readonly logger: Logger;
}

/**
 * The name under which services with this data directory take leases: the machine's name, and an id that stays with the
 * directory, which only one service uses at a time. So a service that crashed gets its lease back at once.
 */
export async function holderOf(dataDir: string): Promise<string> {
  const file = path.join(dataDir, HOLDER_FILE);
  const id = await readFile(file, "utf8").catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
    const made = randomBase32(12);
    await writeFile(file, made, { mode: 0o600 });
    return made;
  });
  return `${hostname()}_${id.trim()}`;
}

/**
 * The right to own an instance's pods, as a Lease in the cluster. Only one service has it at a time. It does not depend
 * on synchronized clocks: for a service that wants the lease, it has expired when that service has not seen it change
 * for its duration. The holder stops earlier than that, counted from before it sent its last renewal.
 */
export class InstanceLease {
  readonly #options: LeaseOptions;
  readonly #name: string;
  readonly #run = randomUUID();
  readonly #stop = new AbortController();
  /** The lease as the API server has it. */
  #lease: V1Lease;
  /** When the last renewal was sent, on the monotonic clock. */
  #renewedAt = Number.NEGATIVE_INFINITY;
  #lost: BerthError | undefined;
  #renewing = Promise.resolve();

  private constructor(options: LeaseOptions) {
    this.#options = options;
    this.#name = `berth-${createHash("sha256").update(options.instance).digest("hex").slice(0, 32)}`;
    this.#lease = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { name: this.#name, labels: { [INSTANCE_LABEL]: instanceLabel(options.instance) } },
    };
  }

  /**
   * Takes the lease, and renews it until {@link release}. Waits up to its duration for another holder's lease to
   * expire.
   * @throws `INVALID_ARGUMENT` with the holder's name, `ENGINE_UNAVAILABLE`
   */
  static async acquire(options: LeaseOptions, signal?: AbortSignal): Promise<InstanceLease> {
    const lease = new InstanceLease(options);
    await lease.#take(signal);
    lease.#renewing = lease.#keep();
    return lease;
  }

  /** Whether this service holds it, so that no other service can. */
  get isHeld(): boolean {
    return this.#lost === undefined && performance.now() - this.#renewedAt <= HOLD_MS;
  }

  /** @throws `ENGINE_UNAVAILABLE` if another service has the lease, or may have it by now. */
  assertHeld(): void {
    if (this.#lost !== undefined) throw this.#lost;
    if (this.isHeld) return;
    throw new BerthError(
      "ENGINE_UNAVAILABLE",
      `Berth could not renew its lease on the instance for ${HOLD_MS / 1000} s, and keeps retrying.`,
      { retryAfterMs: 1000 },
    );
  }

  /** Releases the lease, so that the next service can take the instance at once. */
  async release(): Promise<void> {
    this.#stop.abort();
    await this.#renewing;
    if (this.#lost !== undefined) return;
    await this.#put("", this.#lease).catch((error: unknown) =>
      this.#options.logger.warn(
        { err: error },
        "could not release the lease on the instance; it ends by itself",
      ),
    );
  }

  async #take(signal: AbortSignal | undefined): Promise<void> {
    const { holder, instance, logger } = this.#options;
    /** When the lease was first seen, and when its latest version was. */
    let began = 0;
    let seenAt = 0;
    let isRenewed = false;
    let toldAt = Number.NEGATIVE_INFINITY;
    let version: string | undefined;
    for (;;) {
      throwIfAborted(signal);
      const found = await this.#get(signal);
      const now = performance.now();
      const { holderIdentity: other, leaseDurationSeconds: seconds = LEASE_SECONDS } = found?.spec ?? {};
      if (found?.metadata?.resourceVersion !== version || version === undefined) {
        isRenewed = version !== undefined;
        if (!isRenewed) began = now;
        seenAt = now;
      }
      version = found?.metadata?.resourceVersion;
      const isFree = !other || other === holder || now - seenAt >= seconds * 1000;
      if (isFree) {
        if (await this.#tryPut(found)) return;
        continue;
      }
      // The other holder is alive.
      if (isRenewed && now - began >= seconds * 1000) throw heldBy(instance, other);
      if (now - toldAt >= PROGRESS_MS) {
        toldAt = now;
        logger.warn(
          { instance, holder: other },
          `another service has the instance; waits up to ${seconds} s for it to leave`,
        );
      }
      await sleep(POLL_MS, undefined, signal && { signal }).catch(() => {});
    }
  }

  /** Renews the lease until it is released or another service has it. */
  async #keep(): Promise<void> {
    const { signal } = this.#stop;
    const { logger, instance } = this.#options;
    for (let wasHeld = true; ; ) {
      await rest(wasHeld ? RENEW_MS : POLL_MS, signal);
      if (signal.aborted) return;
      try {
        await this.#renew();
        wasHeld = true;
      } catch (error) {
        if (this.#lost !== undefined) {
          logger.error(
            { instance, err: this.#lost },
            "lost the instance: creates and removes nothing any more",
          );
          return;
        }
        if (wasHeld)
          logger.warn({ instance, err: error }, "could not renew the lease on the instance; retrying");
        wasHeld = false;
      }
    }
  }

  async #renew(): Promise<void> {
    const { holder, instance } = this.#options;
    if (await this.#tryPut(this.#lease)) return;
    const found = await this.#get();
    const isOwn = found?.metadata?.annotations?.[RUN_ANNOTATION] === this.#run;
    if (found !== undefined && !(isOwn && found.spec?.holderIdentity === holder)) {
      this.#lost = takenBy(instance, found.spec?.holderIdentity ?? "");
      throw this.#lost;
    }
    // The lease was deleted, or an answer was lost.
    if (!(await this.#tryPut(found))) throw new Error("the lease changed meanwhile");
  }

  async #get(signal?: AbortSignal): Promise<V1Lease | undefined> {
    const { api } = this.#options;
    const path = api.path(`leases/${this.#name}`, GROUP);
    const limits = { timeoutMs: CALL_TIMEOUT_MS, signal };
    return api.call<V1Lease>("GET", path, "reading a lease", limits).catch((error: unknown) => {
      if (isRefusal(error, 404)) return undefined;
      throw error;
    });
  }

  /** Takes the lease for this run, if it has not changed since `found`. */
  async #tryPut(found: V1Lease | undefined): Promise<boolean> {
    const sentAt = performance.now();
    try {
      this.#lease = await this.#put(this.#options.holder, found);
    } catch (error) {
      const isGone = isRefusal(error, 404);
      if (isGone && found === undefined) throw noNamespace(this.#options.api.namespace, error);
      if (isGone || isRefusal(error, 409)) return false;
      throw error;
    }
    this.#renewedAt = sentAt;
    return true;
  }

  async #put(holderIdentity: string, found: V1Lease | undefined): Promise<V1Lease> {
    const { api } = this.#options;
    const before = found?.spec;
    // The API requires six fractional digits.
    const now = new Date().toISOString().replace("Z", "000Z");
    const isNew = before?.holderIdentity !== holderIdentity;
    const { name, labels } = this.#lease.metadata ?? {};
    const resourceVersion = found?.metadata?.resourceVersion;
    const body = {
      ...{ apiVersion: "coordination.k8s.io/v1", kind: "Lease" },
      metadata: {
        ...{ name, labels, annotations: { [RUN_ANNOTATION]: this.#run } },
        ...(resourceVersion !== undefined && { resourceVersion }),
      },
      spec: {
        holderIdentity,
        leaseDurationSeconds: LEASE_SECONDS,
        acquireTime: isNew ? now : before?.acquireTime,
        renewTime: now,
        leaseTransitions: (before?.leaseTransitions ?? 0) + (isNew ? 1 : 0),
      },
    };
    const [method, rest] = found === undefined ? ["POST", "leases"] : ["PUT", `leases/${this.#name}`];
    const call = { body, timeoutMs: CALL_TIMEOUT_MS };
    return api.call<V1Lease>(method, api.path(rest, GROUP), "renewing the lease on the instance", call);
  }
}

function noNamespace(namespace: string, cause: unknown): BerthError {
  return new BerthError(
    "ENGINE_UNAVAILABLE",
    `The cluster has no namespace ${JSON.stringify(namespace)}. Create it, or name another with --namespace.`,
    { cause },
  );
}

function heldBy(instance: string, holder: string): BerthError {
  return new BerthError(
    "INVALID_ARGUMENT",
    `--instance: another service, ${JSON.stringify(holder)}, has the instance ${JSON.stringify(instance)} in this namespace. Stop it, or choose another instance.`,
    { metadata: { field: "instance", holder } },
  );
}

function takenBy(instance: string, holder: string): BerthError {
  const who = holder === "" ? "Another service" : `Another service, ${JSON.stringify(holder)},`;
  return new BerthError(
    "ENGINE_UNAVAILABLE",
    `${who} took the instance ${JSON.stringify(instance)} while this one could not renew its lease. Stop one of them and restart the other.`,
    { metadata: { holder } },
  );
}

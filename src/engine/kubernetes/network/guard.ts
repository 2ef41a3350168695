import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted, within } from "../../../base/async.ts";
import { BerthError } from "../../../base/errors.ts";
import type { Logger } from "../../../base/logger.ts";
import type { NetworkMode } from "../../port.ts";
import { NETWORK_LABEL } from "../pod.ts";
import type { PolicyKeeper } from "./keeper.ts";
import type { ProbeResult } from "./probe.ts";

/** How long a test that failed is waited with before it is repeated: what disturbed it may be over. */
const RETRY_MS = 60_000;
/** How long a stop waits for the pods of a test that runs. */
const CLOSE_MS = 10_000;

/** What a {@link NetworkGuard} needs. */
export interface GuardParts {
  readonly keeper: PolicyKeeper;
  readonly probe: (signal: AbortSignal) => Promise<ProbeResult>;
  readonly logger: Logger;
  /** Default a minute. */
  readonly retryMs?: number | undefined;
}

/**
 * Whether sandboxes get the network that they are promised: only where the instance's policies are in the cluster, a
 * test from inside has shown that they hold, and no policy of others opens what they close. Else creates are refused
 * with the reason, and the test is repeated.
 */
export class NetworkGuard {
  readonly #parts: GuardParts;
  readonly #stop = new AbortController();
  #result: ProbeResult | undefined;
  /** Why the policies were not as they should be at the last look. */
  #missing: string | undefined;
  /** Which policies of others opened NONE then. */
  #opened: string | undefined;
  readonly #tried = Promise.withResolvers<void>();
  #running: Promise<void> = Promise.resolve();

  constructor(parts: GuardParts) {
    this.#parts = parts;
  }

  /** Makes the policies, and begins the test. @throws `INVALID_ARGUMENT` for options that contradict each other. */
  async start(): Promise<void> {
    await this.#look();
    this.#running = this.#run();
  }

  /** Looks at the policies again, and restores what others changed. */
  async look(): Promise<void> {
    await this.#look().catch((error: BerthError) => this.#refuse(error));
  }

  async #look(): Promise<void> {
    const { keeper, logger } = this.#parts;
    try {
      const { openedBy } = await keeper.ensure();
      const opened =
        openedBy.length === 0
          ? undefined
          : `these network policies of the namespace open it: ${openedBy.slice(0, 5).join(", ")}. Let their podSelector leave out pods with the label ${NETWORK_LABEL}=none.`;
      if (opened !== undefined && opened !== this.#opened)
        logger.warn(
          { policies: openedBy },
          "network policies of others open the network NONE, which is refused",
        );
      this.#opened = opened;
      this.#missing = undefined;
    } catch (error) {
      if (!(error instanceof BerthError) || error.reason === "INVALID_ARGUMENT") throw error;
      this.#refuse(error);
    }
  }

  #refuse(error: BerthError): void {
    const missing = `its network policy is not in force: ${error.message}`;
    if (missing !== this.#missing)
      this.#parts.logger.warn(
        { err: error },
        "the network policies are not in force; new sandboxes are refused",
      );
    this.#missing = missing;
  }

  /** Waits for the test, and looks at the policies. @throws `UNSUPPORTED` where a network does not hold. */
  async require(network: NetworkMode, signal?: AbortSignal): Promise<void> {
    await this.tested(signal);
    await untilAborted(this.look(), signal);
    const problem = this.problemOf(network);
    if (problem === undefined) return;
    const capability = network === "NONE" ? "network_none" : "egress";
    throw new BerthError("UNSUPPORTED", `The network ${network} cannot be guaranteed: ${problem}`, {
      metadata: { capability },
    });
  }

  /** Waits for the first test. */
  async tested(signal?: AbortSignal): Promise<void> {
    await untilAborted(this.#tried.promise, signal);
  }

  /** Why a network does not hold; undefined where it does, or where that is not known yet. */
  problemOf(network: NetworkMode): string | undefined {
    if (this.#missing !== undefined) return this.#missing;
    return network === "NONE" ? (this.#result?.none ?? this.#opened) : this.#result?.egress;
  }

  /** A sentence for the operator; undefined where all is well. */
  get warning(): string | undefined {
    const none = this.problemOf("NONE");
    if (none !== undefined) return `Sandboxes with the network NONE are refused: ${none}`;
    const egress = this.problemOf("EGRESS");
    return egress === undefined ? undefined : `Sandboxes with the network EGRESS are refused: ${egress}`;
  }

  /** Ends a test that runs; its pods are removed. */
  async close(): Promise<void> {
    this.#stop.abort();
    await within(this.#running, CLOSE_MS);
  }

  async #run(): Promise<void> {
    const { probe, logger, retryMs = RETRY_MS } = this.#parts;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        const result = await probe(signal);
        this.#result = result;
        const { none, egress, tested } = result;
        if (none === undefined && egress === undefined) {
          logger.info(
            { tested },
            "the network policies hold: a test from inside reached nothing that is closed",
          );
          return;
        }
        logger.warn({ none, egress, tested }, "the network of sandboxes does not hold; Berth tests it again");
      } catch (error) {
        if (signal.aborted) return;
        const why = `its test failed: ${(error as Error).message}`;
        this.#result = { none: why, egress: why, tested: [] };
        logger.warn({ err: error }, "the network of sandboxes could not be tested; Berth tests it again");
      } finally {
        this.#tried.resolve();
      }
      await sleep(retryMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }
}

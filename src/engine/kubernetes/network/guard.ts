import { rest, untilAborted, within } from "../../../base/async.ts";
import { BerthError } from "../../../base/errors.ts";
import type { Logger } from "../../../base/logger.ts";
import type { NetworkMode } from "../../port.ts";
import { NETWORK_LABEL } from "../pod.ts";
import type { PolicyKeeper } from "./keeper.ts";
import type { ProbeResult } from "./probe.ts";

/** Pause before a failed test is repeated: the cause of the failure may be over then. */
const RETRY_MS = 60_000;
/** How long a stop waits for the removal of the pods of a running test. */
const CLOSE_MS = 10_000;

/** What a {@link NetworkGuard} needs. */
interface GuardParts {
  readonly keeper: PolicyKeeper;
  readonly probe: (signal: AbortSignal) => Promise<ProbeResult>;
  readonly logger: Logger;
  /** Default: a minute. */
  readonly retryMs?: number | undefined;
}

/**
 * Makes sure that sandboxes get the network that they are promised. Allows creates only if the instance's policies are
 * in the cluster, a test from inside pods has shown that they are enforced, and no other policy opens what they close.
 * Otherwise it refuses creates with the reason, and repeats the test.
 */
export class NetworkGuard {
  readonly #parts: GuardParts;
  readonly #stop = new AbortController();
  #result: ProbeResult | undefined;
  /** Why the policies were not as they should be at the last check. */
  #missing: string | undefined;
  /** Which policies of others opened NONE at the last check. */
  #opened: string | undefined;
  readonly #tried = Promise.withResolvers<void>();
  #running: Promise<void> = Promise.resolve();

  constructor(parts: GuardParts) {
    this.#parts = parts;
  }

  /** Creates the policies, and starts the test. @throws `INVALID_ARGUMENT` for options that contradict each other. */
  async start(): Promise<void> {
    await this.#look();
    this.#running = this.#run();
  }

  /** Checks the policies again, and restores what others have changed. */
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

  /** Waits for the first test, and checks the policies. @throws `UNSUPPORTED` if this network is not enforced. */
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

  async tested(signal?: AbortSignal): Promise<void> {
    await untilAborted(this.#tried.promise, signal);
  }

  /** Why a network is not enforced; undefined if it is, or if that is not known yet. */
  problemOf(network: NetworkMode): string | undefined {
    if (this.#missing !== undefined) return this.#missing;
    return network === "NONE" ? (this.#result?.none ?? this.#opened) : this.#result?.egress;
  }

  /** A warning for the operator, in a sentence; undefined if there is no problem. */
  get warning(): string | undefined {
    const none = this.problemOf("NONE");
    if (none !== undefined) return `Sandboxes with the network NONE are refused: ${none}`;
    const egress = this.problemOf("EGRESS");
    return egress === undefined ? undefined : `Sandboxes with the network EGRESS are refused: ${egress}`;
  }

  /** Ends a running test and removes its pods. */
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
      await rest(retryMs, signal);
    }
  }
}

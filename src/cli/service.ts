import type { Finding } from "../base/diagnosis.ts";
import type { Logger } from "../base/logger.ts";
import type { Config } from "../config/options.ts";
import type { IsolationLevel } from "../engine/port.ts";

/** A running service. */
export interface RunningService {
  /** Where it listens, in the form of the setting, with the actual port. */
  readonly address: string;
  readonly engine: { readonly name: string; readonly version: string; readonly isolation: IsolationLevel };
  /** Stops it. Resolves with the ids of sandboxes that still exist. Later calls join the first. */
  stop(): Promise<{ readonly left: readonly string[] }>;
}

/** The service that the program can run. Passed in, so that client commands do not depend on it. */
export interface ServiceParts {
  /** Starts a service. Once the signal fires, it does not wait for an engine that does not answer. */
  start(config: Config, logger: Logger, signal: AbortSignal): Promise<RunningService>;
  /** Checks whether a service could run here. `runs`: one answers at the address, and may be this one. */
  diagnose(config: Config, runs: boolean): Promise<readonly Finding[]>;
}

import type { Finding } from "../base/diagnosis.ts";
import type { Logger } from "../base/logger.ts";
import type { Config } from "../config/options.ts";
import type { IsolationLevel } from "../engine/port.ts";

/** A service that runs. */
export interface RunningService {
  /** Where it listens, with the port it got. */
  readonly address: string;
  readonly engine: { readonly name: string; readonly version: string; readonly isolation: IsolationLevel };
  /** Ends it; resolves with the ids of sandboxes that are still there. */
  stop(): Promise<{ readonly left: readonly string[] }>;
}

/** What the program knows of the service it can be: handed in, so that the clients' commands stay free of it. */
export interface ServiceParts {
  /** Starts a service. */
  start(config: Config, logger: Logger): Promise<RunningService>;
  /** Looks whether one could run here. */
  diagnose(config: Config): Promise<readonly Finding[]>;
}

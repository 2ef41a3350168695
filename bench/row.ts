import type { RawDocker } from "./raw.ts";
import type { BenchService } from "./service.ts";

/** What a row can use. Whatever it starts through this is ended with the row, even if it fails. */
export interface BenchContext {
  readonly image: string;
  readonly raw: RawDocker;
  /** Multiplies rounds and sizes: 1 for the full run. */
  readonly scale: number;
  /** Whether sandboxes have only one user, as with bubblewrap. */
  readonly oneUser: boolean;
  /**
   * Starts a service for this row, with further options of `berth serve`.
   * @param installed starts the built program as its launcher does; call `buildProgram` first. Default: from the
   *   sources.
   */
  start(options?: readonly string[], installed?: boolean): Promise<BenchService>;
  /** Reports progress to the user. */
  progress(text: string): void;
}

/** A line of the result. */
export interface Figure {
  readonly name: string;
  readonly unit: "ms" | "MB/s" | "per second" | "KiB" | "MiB";
  readonly p50: number;
  readonly p99?: number;
  /** The value to compare with: raw Docker's, unless the row says otherwise. */
  readonly rawP50?: number;
  /** How many times better than that. Above 1: faster. */
  readonly ratio?: number;
  /** The goal, in words. */
  readonly goal: string;
  /** Undefined: there is no goal. */
  readonly reached?: boolean;
  /** Every value, for pictures. */
  readonly values?: { readonly berth: readonly number[]; readonly raw: readonly number[] };
}

/** A topic of the benchmark. */
export interface Row {
  readonly name: string;
  /** How long it may take in a full run, in seconds. It gets at least half of that at any scale. */
  readonly limitSeconds: number;
  run(context: BenchContext): Promise<Figure[]>;
}

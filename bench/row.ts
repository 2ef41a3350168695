import type { RawDocker } from "./raw.ts";
import type { BenchService } from "./service.ts";

/** What a row has to work with. Whatever it starts here ends with it, also when it fails. */
export interface BenchContext {
  readonly image: string;
  readonly raw: RawDocker;
  /** Multiplies rounds and sizes: 1 for the full run. */
  readonly scale: number;
  /** Whether sandboxes have one user alone, as bubblewrap's. */
  readonly oneUser: boolean;
  /**
   * Starts a service of the row's own, with further options of `berth serve`.
   * @param installed as its launcher starts it; `buildProgram` has to come before. Default: from its sources.
   */
  start(options?: readonly string[], installed?: boolean): Promise<BenchService>;
  /** Says what is being done, for whoever waits. */
  progress(text: string): void;
}

/** One line of the result. */
export interface Figure {
  readonly name: string;
  readonly unit: "ms" | "MB/s" | "per second" | "KiB" | "MiB";
  readonly p50: number;
  readonly p99?: number;
  /** What Berth is held against: raw Docker where the row says nothing else. */
  readonly rawP50?: number;
  /** How many times better than that: above 1 is faster. */
  readonly ratio?: number;
  /** What it is to reach, in words. */
  readonly goal: string;
  /** Undefined: there is no goal. */
  readonly reached?: boolean;
  /** Every value, for pictures. */
  readonly values?: { readonly berth: readonly number[]; readonly raw: readonly number[] };
}

/** A subject of the benchmark. */
export interface Row {
  readonly name: string;
  /** How long it may take in a full run, in seconds; half of it is granted whatever the scale. */
  readonly limitSeconds: number;
  run(context: BenchContext): Promise<Figure[]>;
}

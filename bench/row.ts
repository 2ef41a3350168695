import type { RawDocker } from "./raw.ts";
import type { BenchService } from "./service.ts";

/** What a row has to work with. */
export interface BenchContext {
  readonly image: string;
  readonly service: BenchService;
  readonly raw: RawDocker;
  /** Multiplies rounds and sizes: 1 for the full run. */
  readonly scale: number;
}

/** One line of the result. */
export interface Figure {
  readonly name: string;
  readonly unit: "ms" | "MB/s" | "per second" | "KiB";
  readonly p50: number;
  readonly p99?: number;
  readonly rawP50?: number;
  /** How many times better than raw Docker: above 1 is faster. */
  readonly ratio?: number;
  /** What it is to reach, in words. */
  readonly goal: string;
  readonly reached: boolean;
  /** Every value, for pictures. */
  readonly values?: { readonly berth: readonly number[]; readonly raw: readonly number[] };
}

/** A subject of the benchmark. */
export interface Row {
  readonly name: string;
  run(context: BenchContext): Promise<Figure[]>;
}

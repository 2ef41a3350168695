import { invalidArgument } from "../../base/errors.ts";

/** Bounds of a number, both inclusive. */
export interface Range {
  readonly min: number;
  /** Default: the largest integer that a number holds exactly. */
  readonly max?: number;
}

/**
 * Takes a 64-bit (or 32-bit) integer of a message as a number.
 *
 * @throws BerthError `INVALID_ARGUMENT` if it is out of range
 */
export function integer(field: string, value: bigint | number, range: Range): number {
  const { min, max = Number.MAX_SAFE_INTEGER } = range;
  if (value < min) throw invalidArgument(field, `is ${value}; it must be at least ${min}`);
  if (value > max) throw invalidArgument(field, `is ${value}; it must be at most ${max}`);
  return Number(value);
}

/** Like {@link integer}, for a field where 0 stands for the default: undefined then. */
export function optionalInteger(field: string, value: bigint | number, range: Range): number | undefined {
  return value === 0n || value === 0 ? undefined : integer(field, value, range);
}

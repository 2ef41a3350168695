import { invalidArgument } from "../../core/errors.ts";

/**
 * A 64-bit field as a number.
 * @throws `INVALID_ARGUMENT` for a value below `least`, or above `most` or what a number holds exactly.
 */
export function toSafeNumber(
  field: string,
  value: bigint,
  bounds: { readonly least: number; readonly most?: number },
): number {
  const most = bounds.most ?? Number.MAX_SAFE_INTEGER;
  if (value < BigInt(bounds.least) || value > BigInt(most)) {
    throw invalidArgument(field, `${value} is not between ${bounds.least} and ${most}.`);
  }
  return Number(value);
}

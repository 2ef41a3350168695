import { expect } from "vitest";
import { BerthError } from "../../../../src/base/errors.ts";

/**
 * The message with which `run` is refused; undefined if it is not. Any error other than `INVALID_ARGUMENT` fails the
 * test.
 */
export function refusal(run: () => unknown): string | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    expect(error).toBeInstanceOf(BerthError);
    expect((error as BerthError).reason).toBe("INVALID_ARGUMENT");
    expect((error as BerthError).metadata).toHaveProperty("field");
    return (error as BerthError).message;
  }
}

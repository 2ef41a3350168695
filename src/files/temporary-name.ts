import { randomBytes } from "node:crypto";

/** A name in a directory of the sandbox that nobody else has and nobody can guess. */
export function temporaryName(): string {
  return `.berth-${randomBytes(16).toString("hex")}`;
}

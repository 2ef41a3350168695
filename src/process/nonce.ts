import { randomBytes } from "node:crypto";

/** A word that nobody can guess: 32 hexadecimal digits. */
export function newNonce(): string {
  return randomBytes(16).toString("hex");
}

import { randomUUID } from "node:crypto";

/** A word that nobody can guess: 32 hexadecimal digits, 122 of whose bits are random. */
export function newNonce(): string {
  // Takes its randomness from the system for many at a time, where randomBytes asks for each.
  return randomUUID().replaceAll("-", "");
}

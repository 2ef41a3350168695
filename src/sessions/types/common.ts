import { z } from "zod";
import { BerthError, invalidArgument } from "../../base/errors.ts";
import type { LeasedSandbox } from "../../sandboxes/lease.ts";
import type { RequestedSpec } from "../../sandboxes/spec.ts";

const MIB = 1024 * 1024;

/** Linux's limit for an environment string: `NAME=value` and the NUL at its end. */
const MAX_VARIABLE_BYTES = 128 * 1024;
/** As for the environment of a sandbox, next to which it has to fit. */
const MAX_VARIABLES = 1024;
const MAX_ENV_BYTES = 768 * 1024;

/** Fields that every type's config may have. */
export const baseConfig = z.strictObject({
  custom_name: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,64}$/, "must be 1-64 of a-z, A-Z, 0-9, _ and -")
    .describe("The last part of the session's name.")
    .optional(),
});

/** A directory to start in. */
export const cwdConfig = z
  .string()
  .min(1)
  .max(4096)
  .refine((text) => !text.includes("\0"), "must not contain NUL")
  .describe("Where it starts: absolute, or relative to the sandbox's directory, which is the default.");

/** Environment variables. */
export const envConfig = z
  .record(z.string().regex(/^[^=\0]+$/, "a name must not be empty or contain = or NUL"), z.string())
  .refine((env) => Object.values(env).every((value) => !value.includes("\0")), "values must not contain NUL")
  .refine(
    (env) => Object.entries(env).every((variable) => bytesOf(variable) <= MAX_VARIABLE_BYTES),
    `a variable has at most ${MAX_VARIABLE_BYTES} bytes`,
  )
  .refine((env) => Object.keys(env).length <= MAX_VARIABLES, `must have at most ${MAX_VARIABLES} variables`)
  .refine(
    (env) => Object.entries(env).reduce((sum, variable) => sum + bytesOf(variable), 0) <= MAX_ENV_BYTES,
    `must have at most ${MAX_ENV_BYTES} bytes: pass more through a file`,
  )
  .describe("Environment variables, over the sandbox's.");

function bytesOf([name, value]: [string, string]): number {
  return Buffer.byteLength(name) + Buffer.byteLength(value) + 2;
}

/** How long a command may run, in seconds. */
export const timeoutParam = z
  .number()
  .positive()
  .max(24 * 24 * 3600)
  .describe("How long it may run, in seconds. Default: the call's timeout, else the sandbox's.")
  .optional();

/** Converts seconds to milliseconds, rounded up. */
export function secondsToMs(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : Math.ceil(seconds * 1000);
}

/**
 * A list in what a sandbox answers. Stops at the first item that is wrong: `z.array` reports all of them, which holds the
 * event loop for most of a second if a hundred thousand are forged. Items are taken as they are, so `item` must not
 * transform them.
 */
export function listOf<S extends z.ZodType>(item: S): z.ZodType<z.input<S>[], unknown> {
  const list = z.array(item);
  return z.custom<z.input<S>[]>((given) => list.validate(given));
}

/** Refuses text with a NUL byte, which no program can take. @throws `INVALID_ARGUMENT`. */
export function withoutNul(field: string, text: string): string {
  if (text.includes("\0")) throw invalidArgument(field, "must not contain a NUL byte.");
  return text;
}

/** The sandbox of a session with a screen or a browser. @param image has the programs, for engines that use images. */
export function desktopSandbox(image: string): RequestedSpec {
  return { image, memoryBytes: 2048 * MIB, cpuMillis: 2000, pidsLimit: 1024 };
}

/** The error for a session that lost its backend, while its sandbox lives. @param cause why, for programs */
export function backendLost(sessionId: string, name: string, why: string, cause: string): BerthError {
  return new BerthError(
    "SESSION_LOST",
    `The session ${JSON.stringify(sessionId)} lost its ${name}: ${why}. Files are kept; the next call starts another one.`,
    { metadata: { session_id: sessionId, cause } },
  );
}

/** Why a backend ended that the kernel killed because its sandbox had reached its limit of memory. */
export function outOfMemory({ spec }: LeasedSandbox): string {
  const mib = Math.floor(spec.resources.memoryBytes / 2 ** 20);
  return `its sandbox ran out of memory (${mib} MiB), and the kernel killed it. Use less memory, or a sandbox with more`;
}

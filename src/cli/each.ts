import { forEachConcurrently } from "../base/async.ts";
import type { ServiceClient } from "./client.ts";
import { complaint } from "./colour.ts";
import { EXIT, Failed } from "./exit.ts";
import { explainedFailure } from "./failure.ts";
import { type ClientFlags, type CommandHost, withClient } from "./host.ts";
import { write, writeJson } from "./io.ts";

/** How many to act on at once. Each takes a connection, and a service has a limited number. */
const MAX_AT_ONCE = 200;

interface EachOptions {
  readonly flags: ClientFlags;
  /** The name of the id in JSON, for example `sandboxId`. */
  readonly name: string;
  /** Fields of a failed one's JSON besides its id and the error. */
  readonly failed?: object;
  /** Acts on one. The result is printed with `--json`. */
  act(client: ServiceClient, id: string, signal: AbortSignal): Promise<unknown>;
}

/**
 * Acts on several things at once, independently of each other. Prints the ids of the successes, and the reasons of the
 * failures.
 * @returns the exit code
 */
export function forEachId(host: CommandHost, ids: readonly string[], options: EachOptions): Promise<number> {
  return withClient(host, options.flags, EXIT.failed, (client) => onEach(host, client, ids, options));
}

async function onEach(
  { io, interrupts: { signal } }: CommandHost,
  client: ServiceClient,
  ids: readonly string[],
  { flags, name, failed, act }: EachOptions,
): Promise<number> {
  const all = [...new Set(ids)];
  const failures = new Map<string, Failed>();
  const one = async (id: string): Promise<void> => {
    try {
      const result = await act(client, id, signal);
      if (flags.json) await writeJson(io.stdout, result, signal);
      else await write(io.stdout, `${id}\n`, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      const failure = await explainedFailure(error, client.address, EXIT.failed);
      if (!(failure instanceof Failed)) throw error;
      if (flags.json) {
        await writeJson(io.stdout, { [name]: id, ...failed, error: failure.message }, signal);
      }
      failures.set(id, failure);
    }
  };
  await forEachConcurrently(all, one, MAX_AT_ONCE);
  const inOrder = all.flatMap((id) => failures.get(id) ?? []);
  // If many fail for the same reason, such as a service that does not run, print it once.
  const distinct = new Map(inOrder.map((failure) => [failure.message, failure]));
  for (const { message, hint } of distinct.values()) {
    await write(io.stderr, complaint(io, message, hint));
  }
  return failures.size === 0 ? EXIT.ok : EXIT.failed;
}

import type { ServiceClient } from "./client.ts";
import { complaint } from "./colour.ts";
import { EXIT, Failed } from "./exit.ts";
import { explainedFailure } from "./failure.ts";
import { type ClientFlags, type CommandHost, withClient } from "./host.ts";
import { write, writeJson } from "./io.ts";

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
  const one = async (id: string): Promise<Failed | undefined> => {
    try {
      const result = await act(client, id, signal);
      if (flags.json) await writeJson(io.stdout, result);
      else await write(io.stdout, `${id}\n`);
      return undefined;
    } catch (error) {
      if (signal.aborted) throw error;
      const failure = await explainedFailure(error, client.address, EXIT.failed);
      if (!(failure instanceof Failed)) throw error;
      if (flags.json) await writeJson(io.stdout, { [name]: id, ...failed, error: failure.message });
      return failure;
    }
  };
  const failures = (await Promise.all([...new Set(ids)].map(one))).filter((failure) => failure !== undefined);
  // If many fail for the same reason, such as a service that does not run, print it once.
  const distinct = new Map(failures.map((failure) => [failure.message, failure]));
  for (const { message, hint } of distinct.values()) {
    await write(io.stderr, complaint(io, message, hint));
  }
  return failures.length === 0 ? EXIT.ok : EXIT.failed;
}

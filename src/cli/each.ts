import type { ServiceClient } from "./client.ts";
import { complaint } from "./colour.ts";
import { EXIT, Failed } from "./exit.ts";
import { explainedFailure } from "./failure.ts";
import type { ClientFlags, CommandHost } from "./host.ts";
import { write, writeJson } from "./io.ts";

/** What {@link forEachId} does to each thing. */
interface EachOptions {
  readonly flags: ClientFlags;
  /** What the id is called in JSON, for instance `sandboxId`. */
  readonly name: string;
  /** What the JSON of one that failed has beside its id and the error. */
  readonly failed?: object;
  /** Does it; what it returns is printed with `--json`. */
  act(id: string): Promise<unknown>;
}

/**
 * Does something to each of some things, at the same time and each on its own:
 * prints the ids of those that went well, and why the others did not.
 * @returns the exit code
 */
export async function forEachId(
  { io, interrupts: { signal } }: CommandHost,
  client: ServiceClient,
  ids: readonly string[],
  { flags, name, failed, act }: EachOptions,
): Promise<number> {
  const one = async (id: string): Promise<Failed | undefined> => {
    try {
      const result = await act(id);
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
  // The same failure of many things, as of a service that is not there, is printed once.
  const distinct = new Map(failures.map((failure) => [failure.message, failure]));
  for (const { message, hint } of distinct.values()) {
    await write(io.stderr, complaint(io, message, hint));
  }
  return failures.length === 0 ? EXIT.ok : EXIT.failed;
}

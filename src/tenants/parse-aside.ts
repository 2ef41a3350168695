import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { TokenFileError, type TokenTable } from "./token-file.ts";

/** What the thread takes. */
export interface TextAside {
  readonly text: string;
  /** Of the file, for errors. */
  readonly name: string;
}

/** What the thread answers. */
export type ParsedAside = { readonly table: TokenTable } | { readonly problem: string };

/** As a source, or beside the program that is built. */
const WORKER = new URL(
  import.meta.url.endsWith(".ts") ? "./token-worker.ts" : "./token-worker.js",
  import.meta.url,
);
/** Many times what the largest file takes. */
const MAX_MS = 30_000;
const MAX_HEAP_MB = 256;

/**
 * Parses the text of a tokens file in a thread of its own: to parse the largest
 * takes tenths of a second, for which the event loop would stand still.
 * @throws TokenFileError as `parseTokenFile`, and where it takes too long or too much memory; the signal's reason
 */
export async function parseTokenFileAside(
  text: string,
  name: string,
  signal: AbortSignal,
): Promise<TokenTable> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(MAX_MS)]);
  limit.throwIfAborted();
  const workerData: TextAside = { text, name };
  const resourceLimits = { maxOldGenerationSizeMb: MAX_HEAP_MB };
  const worker = new Worker(WORKER, { workerData, resourceLimits, execArgv: [], env: {} });
  try {
    const [answer] = (await once(worker, "message", { signal: limit })) as [ParsedAside];
    if ("table" in answer) return answer.table;
    throw new TokenFileError(answer.problem);
  } catch (cause) {
    signal.throwIfAborted();
    if (cause instanceof TokenFileError) throw cause;
    throw new TokenFileError(`${name} cannot be parsed within ${MAX_MS / 1000}s and ${MAX_HEAP_MB} MiB`, {
      cause,
    });
  } finally {
    await worker.terminate();
  }
}

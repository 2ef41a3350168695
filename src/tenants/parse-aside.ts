import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { TokenFileError, type TokenTable } from "./token-file.ts";

/** The parsed content of each kind of file. */
interface Content {
  readonly tokens: TokenTable;
  readonly secrets: ReadonlyMap<string, string>;
}

/** The input of the worker thread. */
export interface TextAside {
  readonly kind: keyof Content;
  readonly text: string;
  /** Name of the file, for errors. */
  readonly name: string;
}

/** The result of the worker thread. */
export type ParsedAside = { readonly content: Content[keyof Content] } | { readonly problem: string };

/** The source, or the file next to the built program. */
const WORKER = new URL(
  import.meta.url.endsWith(".ts") ? "./parse-worker.ts" : "./parse-worker.js",
  import.meta.url,
);
/** Limits of a parse: many times what the largest file takes. */
const MAX_MS = 30_000;
const MAX_HEAP_MB = 256;

/**
 * Parses the text of a tokens or secrets file in a worker thread: parsing the largest files would block the event loop
 * for tenths of a second.
 * @param name the file's name, for errors
 * @throws TokenFileError like `parseTokenFile` and `parseSecretsFile`, or if parsing takes too long or too much memory;
 * the signal's reason
 */
export async function parseAside<K extends keyof Content>(
  kind: K,
  text: string,
  name: string,
  signal?: AbortSignal,
): Promise<Content[K]> {
  const limit = AbortSignal.any([...(signal ? [signal] : []), AbortSignal.timeout(MAX_MS)]);
  limit.throwIfAborted();
  const workerData: TextAside = { kind, text, name };
  const resourceLimits = { maxOldGenerationSizeMb: MAX_HEAP_MB };
  const worker = new Worker(WORKER, { workerData, resourceLimits, execArgv: [], env: {} });
  try {
    const [answer] = (await once(worker, "message", { signal: limit })) as [ParsedAside];
    if ("content" in answer) return answer.content as Content[K];
    throw new TokenFileError(answer.problem);
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof TokenFileError) throw cause;
    throw new TokenFileError(`${name} cannot be parsed within ${MAX_MS / 1000}s and ${MAX_HEAP_MB} MiB`, {
      cause,
    });
  } finally {
    await worker.terminate();
  }
}

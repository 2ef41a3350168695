import { invalidArgument } from "../base/errors.ts";
import { messageTooLarge } from "../server/error-conversion.ts";

/** Largest chunk of an upload, in bytes. */
export const MAX_CHUNK_BYTES = 1024 * 1024;

/** A message of an upload: first the header, then chunks. */
interface UploadMessage<Header> {
  readonly part:
    | { readonly case: "header"; readonly value: Header }
    | { readonly case: "chunk"; readonly value: Uint8Array }
    | { readonly case: undefined; readonly value?: undefined };
}

/** Divides an upload into its header and its chunks, which are read as they are asked for. */
export interface Upload<Header> {
  readonly header: Header;
  readonly chunks: AsyncIterable<Uint8Array>;
}

/**
 * Reads the header of an upload.
 *
 * @throws BerthError `INVALID_ARGUMENT` for messages out of order, `MESSAGE_TOO_LARGE` for a chunk
 */
export async function beginUpload<Header>(
  messages: AsyncIterable<UploadMessage<Header>>,
): Promise<Upload<Header>> {
  const iterator = messages[Symbol.asyncIterator]();
  const first = await iterator.next();
  if (first.done || first.value.part.case !== "header") {
    throw invalidArgument("header", "is missing: it has to come first, before every chunk");
  }
  return { header: first.value.part.value, chunks: chunksOf(iterator) };
}

async function* chunksOf<Header>(iterator: AsyncIterator<UploadMessage<Header>>): AsyncGenerator<Uint8Array> {
  try {
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) {
      const { part } = next.value;
      if (part.case !== "chunk")
        throw invalidArgument("chunk", "is missing: only chunks may follow the header");
      if (part.value.length > MAX_CHUNK_BYTES) throw messageTooLarge(MAX_CHUNK_BYTES);
      yield part.value;
    }
  } finally {
    await iterator.return?.();
  }
}

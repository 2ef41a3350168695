import { IncomingMessage } from "node:http";
import { addAbortSignal } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import type Docker from "dockerode";
import { LongAnswerError } from "./errors.ts";

type Modem = Docker["modem"];
type DialOptions = Parameters<Modem["dial"]>[0];

/** Enough for a list of thousands of containers. */
const MAX_ANSWER_BYTES = 128 << 20;
/** A registry's error may be in Docker's. */
const MAX_ERROR_BYTES = 1 << 20;
/** A line of progress or an event. An event has the container's labels. */
const MAX_LINE_CHARS = 1 << 20;

const EVERY_STATUS: DialOptions["statusCodes"] = new Proxy({}, { get: () => true });

/**
 * Makes the driver fail with {@link LongAnswerError} instead of reading an answer of any length. A registry and an image
 * that a caller has named decide about the length of some, and what is too long for a string would end the service: the
 * driver converts it where nobody catches errors.
 */
export function limitAnswers(modem: Modem): void {
  const dial = modem.dial.bind(modem);
  modem.dial = (options, callback) => {
    // The streams of a process. They are not an answer.
    if (options.hijack) return dial(options, callback);
    dial({ ...options, isStream: true, statusCodes: EVERY_STATUS }, (error, response) => {
      if (!(response instanceof IncomingMessage)) return callback?.(error, response);
      readAnswer(response, options).then(
        (answer) => callback?.(null, answer),
        (failure: Error) => callback?.(failure, null),
      );
    });
  };
}

/** The parsed body, or the response itself if a stream is wanted. Fails like the driver if the status is an error. */
async function readAnswer(
  response: IncomingMessage,
  { isStream, statusCodes, abortSignal }: DialOptions,
): Promise<IncomingMessage | object> {
  const { statusCode = 0 } = response;
  const isError = statusCodes?.[statusCode] !== true;
  if (isStream && !isError) return response;
  if (abortSignal) addAbortSignal(abortSignal, response);
  const text = await readText(response, isError ? MAX_ERROR_BYTES : MAX_ANSWER_BYTES);
  const json = parsed(text);
  if (isError) throw Object.assign(new Error(json.message ?? text), { statusCode });
  return json;
}

/** Empty for what is not JSON, such as the empty body of a success. */
function parsed(text: string): { readonly message?: string } {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/** Reads a response to its end. @throws {@link LongAnswerError} */
export async function readText(response: AsyncIterable<Buffer>, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new LongAnswerError(`more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

/**
 * Parses a stream of JSON values, one per line, which is how Docker sends progress and events.
 * @throws {@link LongAnswerError}
 */
export async function* jsonLines<T>(stream: AsyncIterable<Buffer | string>): AsyncGenerator<T> {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  for await (const chunk of stream) {
    const [first = "", ...others] = (typeof chunk === "string" ? chunk : decoder.write(chunk)).split("\n");
    // Only the new part was searched, so that the work for a long line is linear.
    const lines = [rest + first, ...others];
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE_CHARS)
      throw new LongAnswerError(`a line of more than ${MAX_LINE_CHARS} characters`);
    for (const line of lines) if (line.trim() !== "") yield JSON.parse(line) as T;
  }
  if (rest.trim() !== "") yield JSON.parse(rest) as T;
}

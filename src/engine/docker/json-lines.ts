import { StringDecoder } from "node:string_decoder";

/** Reads a stream of JSON values, one a line, as Docker sends progress and events. */
export async function* jsonLines<T>(stream: AsyncIterable<Buffer | string>): AsyncGenerator<T> {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  for await (const chunk of stream) {
    const lines = (rest + (typeof chunk === "string" ? chunk : decoder.write(chunk))).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") yield JSON.parse(line) as T;
  }
  if (rest.trim() !== "") yield JSON.parse(rest) as T;
}

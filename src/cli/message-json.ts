import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";

/** A message as the service's HTTP interface writes it: `--json` speaks the API's own names. */
export function messageJson<D extends DescMessage>(schema: D, message: MessageShape<D>): unknown {
  return toJson(schema, message, { alwaysEmitImplicit: true });
}

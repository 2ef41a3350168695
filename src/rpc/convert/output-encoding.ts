import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { Encoded } from "../../server/encoded.ts";

/** Field numbers of `process.proto`: `output` in each stream's events, and `Output`'s own. */
const OUTPUT = 2;
const STREAM = 1;
const OFFSET = 2;
const DATA = 3;

/**
 * The encoding of an event with output, its data as it is. Output makes up
 * nearly all that is ever sent, and the generated code copies it three times.
 */
export function encodeOutput(stream: number, offset: number, data: Uint8Array): Encoded {
  const fields = new BinaryWriter().tag(STREAM, WireType.Varint).int32(stream);
  if (offset > 0) fields.tag(OFFSET, WireType.Varint).int64(BigInt(offset));
  const inner = fields.tag(DATA, WireType.LengthDelimited).uint32(data.length).finish();
  const head = new BinaryWriter()
    .tag(OUTPUT, WireType.LengthDelimited)
    .uint32(inner.length + data.length)
    .raw(inner)
    .finish();
  return [head, data];
}

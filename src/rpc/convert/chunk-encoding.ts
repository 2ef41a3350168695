import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { Encoded } from "../../server/encoded.ts";

/** The encoding of a message whose only field is these bytes, which are not copied. */
export function encodeChunk(field: number, data: Uint8Array): Encoded {
  const head = new BinaryWriter().tag(field, WireType.LengthDelimited).uint32(data.length).finish();
  return [head, data];
}

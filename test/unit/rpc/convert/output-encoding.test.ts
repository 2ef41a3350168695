import { create, toBinary, toJsonString } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  AttachProcessResponseSchema,
  ExecResponseSchema,
  OutputStream,
} from "../../../../gen/ts/berth/v1/process_pb.js";
import { encodeOutput, jsonOutput } from "../../../../src/rpc/convert/process.ts";

test("agrees with the generated code, for every stream of a process", () => {
  fc.assert(
    fc.property(
      fc.constantFrom(OutputStream.STDOUT, OutputStream.STDERR),
      fc.oneof(fc.constant(0), fc.maxSafeNat()),
      fc.uint8Array({ minLength: 1, maxLength: 300 }),
      (stream, offset, data) => {
        const event = { case: "output" as const, value: { stream, offset: BigInt(offset), data } };
        const encoded = Buffer.concat(encodeOutput(stream, offset, data));
        for (const schema of [ExecResponseSchema, AttachProcessResponseSchema]) {
          expect(encoded.equals(toBinary(schema, create(schema, { event })))).toBe(true);
        }
      },
    ),
  );
});

test("agrees with the library's JSON, for every stream of a process", () => {
  fc.assert(
    fc.property(
      fc.constantFrom("stdout", "stderr"),
      fc.oneof(fc.constant(0), fc.maxSafeNat()),
      fc.uint8Array({ minLength: 1, maxLength: 300 }),
      (stream, offset, data) => {
        const wireStream = stream === "stdout" ? OutputStream.STDOUT : OutputStream.STDERR;
        const value = { stream: wireStream, offset: BigInt(offset), data: Uint8Array.from(data) };
        const text = Buffer.concat(jsonOutput(stream, offset, data)).toString();
        for (const schema of [ExecResponseSchema, AttachProcessResponseSchema]) {
          const message = create(schema, { event: { case: "output", value } });
          expect(text).toBe(toJsonString(schema, message, { alwaysEmitImplicit: true }));
        }
      },
    ),
  );
});

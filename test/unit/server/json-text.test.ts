import { create, type DescMessage, type MessageInitShape, toJsonString } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ReadFileResponseSchema } from "../../../gen/ts/berth/v1/file_pb.js";
import {
  ExecResponseSchema,
  OutputStream,
  RunCommandResponseSchema,
} from "../../../gen/ts/berth/v1/process_pb.js";
import { jsonPieces } from "../../../src/server/json-text.ts";

const OPTIONS = { alwaysEmitImplicit: true };

function expectAsLibrary<Desc extends DescMessage>(desc: Desc, init: MessageInitShape<Desc>): number {
  const serialize = (message: never): Uint8Array => Buffer.from(toJsonString(desc, message, OPTIONS));
  const pieces = jsonPieces(desc, init, serialize);
  expect(Buffer.concat(pieces).toString()).toBe(toJsonString(desc, create(desc, init), OPTIONS));
  return pieces.length;
}

const bytes = (maxLength = 2000) =>
  fc.uint8Array({ maxLength, size: "max" }).map((value) => Uint8Array.from(value));

describe("JSON with Node's base64 is as the library's", () => {
  test("for bytes in a oneof", () => {
    fc.assert(
      fc.property(bytes(), fc.constantFrom(OutputStream.STDOUT, OutputStream.STDERR), (data, stream) => {
        expectAsLibrary(ExecResponseSchema, { event: { case: "output", value: { stream, data } } });
      }),
    );
  });

  test("for several fields of bytes beside others", () => {
    fc.assert(
      fc.property(bytes(), bytes(), fc.string(), (stdout, stderr, processId) => {
        expectAsLibrary(RunCommandResponseSchema, { stdout, stderr, processId, exitStatus: { exitCode: 3 } });
      }),
    );
  });

  test("for what has no long bytes, in one piece", () => {
    expect(expectAsLibrary(ExecResponseSchema, { event: { case: "started", value: {} } })).toBe(1);
    expect(expectAsLibrary(ReadFileResponseSchema, { data: new Uint8Array(100) })).toBe(1);
    expect(expectAsLibrary(ReadFileResponseSchema, { data: new Uint8Array(100_000) })).toBe(3);
  });
});

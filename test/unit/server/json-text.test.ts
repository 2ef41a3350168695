import { create, type DescMessage, type MessageInitShape, toJsonString } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ReadFileResponseSchema } from "../../../gen/ts/berth/v1/file_pb.js";
import {
  ExecResponseSchema,
  OutputStream,
  RunCommandResponseSchema,
} from "../../../gen/ts/berth/v1/process_pb.js";
import { toJson } from "../../../src/server/json-text.ts";

const OPTIONS = { alwaysEmitImplicit: true };

/** Returns whether the library wrote all of it. */
function expectAsLibrary<Desc extends DescMessage>(desc: Desc, init: MessageInitShape<Desc>): boolean {
  let whole: Uint8Array | undefined;
  const serialize = (message: never): Uint8Array => {
    whole = Buffer.from(toJsonString(desc, message, OPTIONS));
    return whole;
  };
  const json = toJson(desc, init, serialize);
  expect(Buffer.from(json).toString()).toBe(toJsonString(desc, create(desc, init), OPTIONS));
  return json === whole;
}

const bytes = (maxLength = 2000) =>
  fc.uint8Array({ maxLength, size: "max" }).map((value) => Uint8Array.from(value));

describe("JSON with Node's base64 equals the library's", () => {
  test("for bytes in a oneof", () => {
    fc.assert(
      fc.property(bytes(), fc.constantFrom(OutputStream.STDOUT, OutputStream.STDERR), (data, stream) => {
        expectAsLibrary(ExecResponseSchema, { event: { case: "output", value: { stream, data } } });
      }),
    );
  });

  test("for several fields of bytes among others", () => {
    fc.assert(
      fc.property(bytes(), bytes(), fc.string(), (stdout, stderr, processId) => {
        expectAsLibrary(RunCommandResponseSchema, { stdout, stderr, processId, exitStatus: { exitCode: 3 } });
      }),
    );
  });

  test("which writes messages without long bytes", () => {
    expect(expectAsLibrary(ExecResponseSchema, { event: { case: "started", value: {} } })).toBe(true);
    expect(expectAsLibrary(ReadFileResponseSchema, { data: new Uint8Array(100) })).toBe(true);
    expect(expectAsLibrary(ReadFileResponseSchema, { data: new Uint8Array(100_000) })).toBe(false);
  });
});

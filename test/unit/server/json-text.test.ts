import { create, type DescMessage, type MessageInitShape, toJsonString } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ReadFileResponseSchema } from "../../../gen/ts/berth/v1/file_pb.js";
import {
  ExecResponseSchema,
  OutputStream,
  RunCommandResponseSchema,
} from "../../../gen/ts/berth/v1/process_pb.js";
import { jsonAround, toJson } from "../../../src/server/json-text.ts";

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

test("base64 in slices equals base64 in one piece", () => {
  for (const length of [0, 1, 2, 3, 49_151, 49_152, 49_153, 98_304, 98_305, 250_000]) {
    const data = Buffer.alloc(length, "some bytes");
    const text = Buffer.from(jsonAround('{"data":"', data, '"}')).toString();
    expect(text).toBe(JSON.stringify({ data: data.toString("base64") }));
    expectAsLibrary(ReadFileResponseSchema, { data: Uint8Array.from(data) });
  }
});

import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  DownloadArchiveResponseSchema,
  DownloadFileResponseSchema,
  FileInfoSchema,
} from "../../../gen/ts/berth/v1/file_pb.js";
import { RunCommandResponseSchema } from "../../../gen/ts/berth/v1/process_pb.js";
import { encodeMessage, frameBytes } from "../../../src/server/framing.ts";

const SHORT = Buffer.alloc(4000, "short");
const LONG = Buffer.alloc(4096, "long");
const NONE = Buffer.alloc(0);

/** The pieces as they are sent, without their prefix. Fails unless they are the message. */
function sent<Desc extends DescMessage>(schema: Desc, message: MessageInitShape<Desc>) {
  const pieces = encodeMessage(schema, message);
  const whole = Buffer.concat(pieces);
  expect(fromBinary(schema, new Uint8Array(whole))).toEqual(
    fromBinary(schema, toBinary(schema, create(schema, message))),
  );
  const framed = Buffer.concat(frameBytes(pieces));
  expect(framed.readUInt32BE(1)).toBe(whole.length);
  expect(framed.subarray(5)).toEqual(whole);
  return frameBytes(pieces);
}

describe("long bytes are sent as they are, without a copy", () => {
  test.each([
    ["both", LONG, Buffer.from(LONG)],
    ["the first", LONG, SHORT],
    ["the second", SHORT, LONG],
    ["none", SHORT, SHORT],
    ["none: they are empty", NONE, NONE],
  ])("of two fields: %s", (_, stdout, stderr) => {
    const message = { stdout, stderr, processId: "id", truncated: true };
    const pieces = sent(RunCommandResponseSchema, message);
    for (const bytes of [stdout, stderr]) expect(pieces.includes(bytes)).toBe(bytes.length >= 4096);
  });

  test.each([
    [SHORT, 1],
    [LONG, 2],
    [NONE, 1],
  ])("in a oneof", (chunk, count) => {
    const pieces = sent(DownloadFileResponseSchema, { part: { case: "chunk", value: chunk } });
    expect(pieces).toHaveLength(count);
    expect(pieces.includes(chunk)).toBe(chunk === LONG);
  });

  test("not in another field of the oneof, nor in a message within", () => {
    const file = create(FileInfoSchema, { rawLinkTarget: LONG });
    sent(DownloadFileResponseSchema, { part: { case: "header", value: { file } } });
  });

  test("as the only field", () => {
    expect(sent(DownloadArchiveResponseSchema, { chunk: LONG })).toContain(LONG);
    expect(encodeMessage(DownloadArchiveResponseSchema, { chunk: LONG })).toHaveLength(2);
    expect(encodeMessage(DownloadArchiveResponseSchema, {})).toHaveLength(1);
  });

  test("the message stays as it was", () => {
    const message = create(RunCommandResponseSchema, { stdout: LONG });
    encodeMessage(RunCommandResponseSchema, message);
    expect(message.stdout).toBe(LONG);
  });
});

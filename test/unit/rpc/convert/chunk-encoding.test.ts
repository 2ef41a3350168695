import { create, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  DownloadArchiveResponseSchema,
  DownloadFileResponseSchema,
} from "../../../../gen/ts/berth/v1/file_pb.js";
import { toWireArchiveChunk, toWireDownloadItem } from "../../../../src/rpc/convert/file.ts";
import { encodingOf } from "../../../../src/server/framing.ts";

test("agrees with the generated code, for files and archives", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), (bytes) => {
      const data = Buffer.from(bytes);
      const part = toWireDownloadItem({ type: "chunk", data });
      expect(Buffer.concat(encodingOf(part)?.proto() ?? [])).toEqual(
        Buffer.from(toBinary(DownloadFileResponseSchema, create(DownloadFileResponseSchema, part))),
      );
      const chunk = toWireArchiveChunk(data);
      expect(Buffer.concat(encodingOf(chunk)?.proto() ?? [])).toEqual(
        Buffer.from(toBinary(DownloadArchiveResponseSchema, create(DownloadArchiveResponseSchema, chunk))),
      );
    }),
  );
});

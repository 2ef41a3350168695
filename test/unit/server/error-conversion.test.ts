import { readFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ErrorDetailSchema, ErrorReasonSchema } from "../../../gen/ts/berth/v1/error_pb.js";
import { BerthError, type ErrorReason } from "../../../src/base/errors.ts";
import { statusName } from "../../../src/server/call.ts";
import { ERROR_TABLE, toConnectError } from "../../../src/server/error-conversion.ts";
import { statusTrailers } from "../../../src/server/grpc-response.ts";
import { codePoint } from "../../support/code-point.ts";

const reasons = Object.keys(ERROR_TABLE) as ErrorReason[];

describe("the table", () => {
  test("contains every reason of the wire, each once", () => {
    const wire = ErrorReasonSchema.values.map(({ name }) => name.replace("ERROR_REASON_", ""));
    expect(["UNSPECIFIED", ...reasons].sort()).toEqual(wire.sort());
    for (const reason of reasons) {
      const value = ErrorReasonSchema.values.find(({ number }) => number === ERROR_TABLE[reason].reason);
      expect(value?.name).toBe(`ERROR_REASON_${reason}`);
    }
  });

  test("agrees with the contract's comment on each reason", () => {
    const proto = readFileSync(new URL("../../../proto/berth/v1/error.proto", import.meta.url), "utf8");
    for (const reason of reasons) {
      // The comment above each value starts with its code.
      const comment = new RegExp(
        `  // ([A-Z_]+): (?:(?!  // [A-Z_]+:)[\\s\\S])*?ERROR_REASON_${reason} =`,
      ).exec(proto);
      expect(`${reason}: ${comment?.[1]}`).toBe(`${reason}: ${statusName(ERROR_TABLE[reason].code)}`);
    }
  });
});

test("an error carries its reason, its metadata and when to retry", () => {
  const error = toConnectError(
    new BerthError("ENGINE_UNAVAILABLE", "Docker does not answer.", {
      metadata: { engine: "docker" },
      retryAfterMs: 2500.4,
      cause: new Error("connect ENOENT /var/run/docker.sock"),
    }),
  );
  expect(error.code).toBe(Code.Unavailable);
  expect(error.rawMessage).toBe("Docker does not answer.");
  expect(error.cause).toBeUndefined();
  expect(error.findDetails(ErrorDetailSchema)).toMatchObject([
    { metadata: { engine: "docker" }, retryAfter: { seconds: 2n, nanos: 501_000_000 } },
  ]);
  const plain = toConnectError(new BerthError("CANCELED", "The call was canceled."));
  expect(plain.findDetails(ErrorDetailSchema)[0]?.retryAfter).toBeUndefined();
});

test("any message fits into gRPC's trailers, and can be read from them", () => {
  fc.assert(
    fc.property(
      fc.string({ unit: codePoint, maxLength: 2000 }),
      fc.string({ unit: codePoint }),
      (message, value) => {
        const error = toConnectError(
          new BerthError("INVALID_ARGUMENT", `${message}\ud800`, { metadata: { value } }),
        );
        const trailers = statusTrailers(error, undefined);
        expect(trailers["grpc-message"]).toMatch(/^[\x20-\x7e]*$/);
        expect(trailers["grpc-message"]?.length).toBeLessThan(12_500);
        // Clients decode it in one of these two ways.
        expect(decodeURIComponent(trailers["grpc-message"] ?? "")).toBe(
          error.rawMessage.replace(/^ +| +$/g, ""),
        );
      },
    ),
  );
});

test("texts that quote a request are truncated", () => {
  const error = toConnectError(
    new BerthError("INVALID_ARGUMENT", "x".repeat(100_000), { metadata: { field: "y".repeat(100_000) } }),
  );
  expect(error.rawMessage.length).toBeLessThan(1100);
  expect(error.findDetails(ErrorDetailSchema)[0]?.metadata.field?.length).toBeLessThan(1100);
});

test("statuses are written as gRPC writes them", () => {
  expect(statusName(0)).toBe("OK");
  expect(statusName(Code.Canceled)).toBe("CANCELLED");
  expect(statusName(Code.DeadlineExceeded)).toBe("DEADLINE_EXCEEDED");
  expect(statusName(Code.NotFound)).toBe("NOT_FOUND");
});

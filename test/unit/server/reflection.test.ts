import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { file_berth_v1_error } from "../../../gen/ts/berth/v1/error_pb.js";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import {
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
} from "../../../gen/ts/grpc/reflection/v1/reflection_pb.js";
import { Reflection } from "../../../src/server/reflection.ts";

const reflection = new Reflection([SandboxService, ProcessService], [file_berth_v1_error]);

function ask(messageRequest: ServerReflectionRequest["messageRequest"]) {
  const request = create(ServerReflectionRequestSchema, { host: "h", messageRequest });
  const answer = reflection.answer(toBinary(ServerReflectionRequestSchema, request));
  expect(answer).toMatchObject({ validHost: "h", originalRequest: request });
  return answer.messageResponse;
}

function filesOf(answer: ReturnType<typeof ask>): string[] {
  if (answer.case !== "fileDescriptorResponse") throw new Error(`no files but ${answer.case}`);
  return answer.value.fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes).name);
}

test("lists its services and itself", () => {
  const answer = ask({ case: "listServices", value: "" });
  expect(answer).toMatchObject({
    case: "listServicesResponse",
    value: {
      service: [
        { name: "berth.v1.ProcessService" },
        { name: "berth.v1.SandboxService" },
        { name: "grpc.reflection.v1.ServerReflection" },
        { name: "grpc.reflection.v1alpha.ServerReflection" },
      ],
    },
  });
});

const WITH_DEPENDENCIES = [
  "berth/v1/sandbox.proto",
  "google/protobuf/duration.proto",
  "google/protobuf/field_mask.proto",
  "google/protobuf/timestamp.proto",
];

describe("finds a file with everything it imports", () => {
  test.each([
    "berth.v1.SandboxService",
    "berth.v1.SandboxService.GetStats",
    "berth.v1.Sandbox",
    "berth.v1.Sandbox.sandbox_id",
    "berth.v1.SandboxState",
    "berth.v1.SandboxSpec.EnvEntry",
  ])("by the symbol %s", (value) => {
    expect(filesOf(ask({ case: "fileContainingSymbol", value })).sort()).toEqual(WITH_DEPENDENCIES);
  });

  test("by its name", () => {
    expect(filesOf(ask({ case: "fileByFilename", value: "berth/v1/sandbox.proto" })).sort()).toEqual(
      WITH_DEPENDENCIES,
    );
    expect(filesOf(ask({ case: "fileByFilename", value: "google/protobuf/duration.proto" }))).toEqual([
      "google/protobuf/duration.proto",
    ]);
  });
});

test.each([
  { case: "fileContainingSymbol", value: "no.such.Thing" },
  { case: "fileContainingSymbol", value: "" },
  { case: "fileByFilename", value: "/etc/passwd" },
  { case: "fileContainingExtension", value: { containingType: "berth.v1.Sandbox", extensionNumber: 1 } },
  { case: "allExtensionNumbersOfType", value: "no.such.Thing" },
] as ServerReflectionRequest["messageRequest"][])("what is not there is an answer: %j", (question) => {
  expect(ask(question)).toMatchObject({ case: "errorResponse", value: { errorCode: 5 } });
});

test("finds files that no service imports", () => {
  const answer = ask({ case: "fileContainingSymbol", value: "berth.v1.ErrorDetail" });
  expect(filesOf(answer).sort()).toEqual(["berth/v1/error.proto", "google/protobuf/duration.proto"]);
});

test("lists no extensions for a type without any", () => {
  expect(ask({ case: "allExtensionNumbersOfType", value: "berth.v1.Sandbox" })).toMatchObject({
    case: "allExtensionNumbersResponse",
    value: { baseTypeName: "berth.v1.Sandbox", extensionNumber: [] },
  });
});

test("a request without a question is an error", () => {
  expect(ask({ case: undefined })).toMatchObject({ case: "errorResponse", value: { errorCode: 3 } });
});

test("a question of any length is answered without repeating it", () => {
  for (const [part, isRepeated] of [
    [{ host: "h".repeat(4000) }, true],
    [{ host: "h".repeat(5000) }, false],
    [{ messageRequest: { case: "fileByFilename" as const, value: "\n".repeat(4_000_000) } }, false],
  ] as const) {
    const request = create(ServerReflectionRequestSchema, part);
    const answer = reflection.answer(toBinary(ServerReflectionRequestSchema, request));
    expect(answer).toMatchObject({
      validHost: isRepeated ? request.host : "",
      messageResponse: { case: "errorResponse", value: { errorCode: 3 } },
    });
    expect(answer.originalRequest).toEqual(isRepeated ? request : undefined);
  }
});

import { create, createFileRegistry, type DescMethodClientStreaming } from "@bufbuild/protobuf";
import {
  type BytesValueSchema,
  FileDescriptorProtoSchema,
  file_google_protobuf_wrappers,
  type Int64ValueSchema,
} from "@bufbuild/protobuf/wkt";

const file = create(FileDescriptorProtoSchema, {
  name: "test/upload.proto",
  package: "test",
  syntax: "proto3",
  dependency: [file_google_protobuf_wrappers.proto.name],
  service: [
    {
      name: "UploadService",
      method: [
        {
          name: "Upload",
          inputType: ".google.protobuf.BytesValue",
          outputType: ".google.protobuf.Int64Value",
          clientStreaming: true,
        },
      ],
    },
  ],
});

const service = createFileRegistry(file, () => file_google_protobuf_wrappers).getService(
  "test.UploadService",
);
if (!service) throw new Error("the test service was not built");

/** A service with a client-streaming method, the only kind that Berth's first services lack. */
export const UploadService = service;

/** `rpc Upload(stream google.protobuf.BytesValue) returns (google.protobuf.Int64Value)` */
export const uploadMethod = service.method.upload as DescMethodClientStreaming<
  typeof BytesValueSchema,
  typeof Int64ValueSchema
>;

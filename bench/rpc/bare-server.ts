import { fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import {
  type GetStatsRequest,
  GetStatsRequestSchema,
  type GetStatsResponse,
  GetStatsResponseSchema,
  SandboxService,
} from "../../gen/ts/berth/v1/sandbox_pb.js";
import { makeAnswer } from "./answer.ts";

// A bare grpc-js server, with which unary calls are compared.
const { getStats } = SandboxService.method;
const server = new grpc.Server();
server.addService(
  {
    getStats: {
      path: `/${getStats.parent.typeName}/${getStats.name}`,
      requestStream: false,
      responseStream: false,
      requestSerialize: (message: GetStatsRequest) => Buffer.from(toBinary(GetStatsRequestSchema, message)),
      requestDeserialize: (bytes: Buffer) => fromBinary(GetStatsRequestSchema, bytes),
      responseSerialize: (message: GetStatsResponse) =>
        Buffer.from(toBinary(GetStatsResponseSchema, message)),
      responseDeserialize: (bytes: Buffer) => fromBinary(GetStatsResponseSchema, bytes),
    },
  },
  {
    getStats: (_call: unknown, callback: grpc.sendUnaryData<GetStatsResponse>) =>
      callback(null, makeAnswer()),
  },
);
server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  process.send?.(port);
});

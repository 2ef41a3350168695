import { create } from "@bufbuild/protobuf";
import { type GetStatsResponse, GetStatsResponseSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";

/** The response of every server in this benchmark: the figures of a service with one sandbox. */
export function makeAnswer(): GetStatsResponse {
  return create(GetStatsResponseSchema, {
    totalSandboxes: 1,
    maxSandboxes: 100,
    idleTimeout: { seconds: 3600n },
    cleanupInterval: { seconds: 300n },
    sandboxes: [
      { sandboxId: "sbx_aaaaaaaaaaaaaaaaaaaa", lastUsed: { seconds: 1n, nanos: 5 }, isActive: true },
    ],
  });
}

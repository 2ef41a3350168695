import { expect, test } from "vitest";
import { FileService } from "../../../gen/ts/berth/v1/file_pb.js";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { RunService } from "../../../gen/ts/berth/v1/run_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionService } from "../../../gen/ts/berth/v1/session_pb.js";
import { WorkspaceService } from "../../../gen/ts/berth/v1/workspace_pb.js";

const SERVICES = [
  FileService,
  ProcessService,
  RunService,
  SandboxService,
  SessionService,
  WorkspaceService,
] as const;

test("a line of JSON with a code is an error, never a message", () => {
  const streams = SERVICES.flatMap(({ methods }) =>
    methods.filter((one) => one.methodKind === "server_streaming"),
  );
  expect(streams.length).toBeGreaterThan(8);
  for (const { output } of streams)
    expect(output.fields.map(({ jsonName }) => jsonName)).not.toContain("code");
});

import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { FileService } from "../../../gen/ts/berth/v1/file_pb.js";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { RunService } from "../../../gen/ts/berth/v1/run_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionService } from "../../../gen/ts/berth/v1/session_pb.js";
import { WorkspaceService } from "../../../gen/ts/berth/v1/workspace_pb.js";

const METHODS = [
  FileService,
  ProcessService,
  RunService,
  SandboxService,
  SessionService,
  WorkspaceService,
].flatMap((service) => service.methods);

const READS = /^(Get|List|Stat|Read|Lookup|Download|Export|Watch|Attach|Diff)/;

test.each(METHODS.map((method) => [method.name, method] as const))(
  "%s says whether it only reads",
  (name, method) => {
    expect(method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS).toBe(READS.test(name));
  },
);

test("requests of reads may be in a URL: they contain ids, paths and filters, and change nothing", () => {
  const fields = METHODS.filter(({ name }) => READS.test(name)).flatMap(({ input }) => input.fields);
  expect(fields.length).toBeGreaterThan(30);
  for (const field of fields) {
    expect(field.name).not.toMatch(/^(request_id|env|token|secret|password|data|content|stdin)$/);
  }
});

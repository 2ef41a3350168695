import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  ExecuteToolBatchResponseSchema,
  ExecuteToolResponseSchema,
} from "../../../gen/ts/berth/v1/session_pb.js";
import { Subjects } from "../../../src/server/subjects.ts";

test("a batch of tools names the sessions that it used, as one tool does", () => {
  const meta = { sessionId: "bash_w_001_abcdef01", traceId: "trace_x" };
  const one = new Subjects();
  one.add(ExecuteToolResponseSchema, create(ExecuteToolResponseSchema, { meta }));
  expect(one.ids).toEqual({ session_id: [meta.sessionId], trace_id: [meta.traceId] });
  const batch = new Subjects();
  const results = [{ outcome: { case: "response" as const, value: { meta } } }];
  batch.add(ExecuteToolBatchResponseSchema, create(ExecuteToolBatchResponseSchema, { results }));
  expect(batch.ids).toEqual(one.ids);
});

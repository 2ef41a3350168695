import { create } from "@bufbuild/protobuf";
import { createContextValues, type HandlerContext } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ExecuteToolStreamRequestSchema, SessionService } from "../../../gen/ts/berth/v1/session_pb.js";
import { SessionHandler, type SessionHandlerParts } from "../../../src/rpc/session-service.ts";
import { type Call, setCall } from "../../../src/server/call.ts";
import type { ToolObserver } from "../../../src/sessions/tool-runner.ts";

/** How many pieces of what was read a tool may write before it must wait for a reader that reads. */
async function writtenAhead(pieceBytes: number): Promise<number> {
  let written = 0;
  const { signal } = new AbortController();
  const parts = {
    requests: {
      run: (_key: unknown, _signal: AbortSignal, act: (signal: AbortSignal) => unknown) => act(signal),
    },
    tools: {
      run: async (_call: unknown, { output }: ToolObserver): Promise<never> => {
        const piece = () => Buffer.allocUnsafeSlow(64 * 1024).subarray(0, pieceBytes);
        while (written < 10_000 && output.write("stdout", piece()) === undefined) written++;
        throw new Error("the end");
      },
    },
    keepaliveMs: 60_000,
  };
  const method = SessionService.method.executeToolStream;
  const values = createContextValues();
  setCall(values, {} as Partial<Call> as Call);
  const context = { signal, method, values };
  const request = create(ExecuteToolStreamRequestSchema, { workerId: "w", tool: "run" });
  const handler = new SessionHandler(parts as unknown as SessionHandlerParts);
  const events = handler.executeToolStream(request, context as unknown as HandlerContext);
  const read = async (): Promise<void> => {
    while (!(await events.next()).done);
  };
  await expect(read()).rejects.toThrow("the end");
  return written;
}

test("output that waits for its reader counts with the memory that it keeps", async () => {
  expect(await writtenAhead(20_000)).toBeLessThan(6);
});

test("small parts of what was read keep none of the rest, and do not count with it", async () => {
  expect(await writtenAhead(100)).toBeGreaterThan(500);
});

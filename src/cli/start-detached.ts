import type { MessageInitShape } from "@bufbuild/protobuf";
import { type ExecRequestSchema, type ExecResponse, OnDisconnect } from "../../gen/ts/berth/v1/process_pb.js";
import type { ServiceClient } from "./client.ts";

/** Starts a process that goes on without this program; returns its id, and the event that told it. */
export async function startDetached(
  client: ServiceClient,
  request: MessageInitShape<typeof ExecRequestSchema>,
  signal: AbortSignal,
): Promise<{ readonly processId: string; readonly response: ExecResponse }> {
  // Leaving the loop below does not end the call; this does.
  const leave = new AbortController();
  const detached = { ...request, onDisconnect: OnDisconnect.DETACH };
  const call = client.processes.exec(detached, { signal: AbortSignal.any([signal, leave.signal]) });
  try {
    for await (const response of call) {
      if (response.event.case === "started") return { processId: response.event.value.processId, response };
    }
    throw new Error("the service ended the stream without having started the process");
  } finally {
    leave.abort();
  }
}

import type { WebSocket } from "ws";
import type { ViewSessionResponse } from "../../../gen/ts/berth/v1/session_pb.js";
import type { ServiceClient } from "../client.ts";
import { callFailure } from "../failure.ts";
import { Keyboard } from "../terminal/keyboard.ts";

/** Which session to show, and how. */
export interface ViewRequest {
  readonly workerId: string;
  readonly resourceType: string;
  readonly readOnly: boolean;
}

/** Close codes: the view ended, or it failed. */
const ENDED = 4000;
const FAILED = 4001;
/** The longest reason that a close may have. */
const MAX_REASON_BYTES = 123;

/**
 * Connects a session's view with a WebSocket, in each direction as fast as the slower side reads. Ends with either of
 * them, or with the signal.
 */
export async function bridgeView(
  client: ServiceClient,
  request: ViewRequest,
  socket: WebSocket,
  signal: AbortSignal,
): Promise<void> {
  const leave = new AbortController();
  const ended = AbortSignal.any([signal, leave.signal]);
  // The close event follows.
  socket.on("error", () => {});
  socket.on("close", () => leave.abort());
  socket.pause();
  try {
    for await (const event of client.sessions.viewSession(request, { signal: ended })) {
      await take(client, event, socket, leave);
    }
    close(socket, ENDED, "The viewer ended.");
  } catch (error) {
    const failure = leave.signal.aborted ? leave.signal.reason : error;
    const described = callFailure(failure, client.address, 1);
    close(socket, FAILED, described instanceof Error ? described.message : "The view failed.");
  } finally {
    leave.abort();
  }
}

async function take(
  client: ServiceClient,
  { event }: ViewSessionResponse,
  socket: WebSocket,
  leave: AbortController,
): Promise<void> {
  if (event.case === "started") {
    feed(client, event.value.processId, socket, leave);
  } else if (event.case === "data") {
    const data = event.value;
    // Resolves when the connection has taken it. If it is closed, its close event ends the view.
    await new Promise<void>((resolve) => socket.send(data, () => resolve()));
  }
}

/** Forwards what the page sends, in order and in as few calls as possible. */
function feed(client: ServiceClient, processId: string, socket: WebSocket, leave: AbortController): void {
  const keyboard = new Keyboard({
    write: async (offset, data) => {
      const part = { processId, offset, data: data as Uint8Array<ArrayBuffer> };
      return (await client.processes.writeStdin(part, { signal: leave.signal })).offset;
    },
    onRoom: (room) => (room ? socket.resume() : socket.pause()),
    onFailure: (error) => leave.abort(error),
  });
  socket.on("message", (data: Buffer) => keyboard.type(data));
  socket.resume();
}

function close(socket: WebSocket, code: number, reason: string): void {
  const bytes = Buffer.from(reason);
  // Cuts between characters.
  const fits = new TextDecoder().decode(bytes.subarray(0, MAX_REASON_BYTES), { stream: true });
  socket.resume();
  socket.close(code, fits);
}

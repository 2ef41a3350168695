import type { WebSocket } from "ws";
import type { ViewSessionResponse } from "../../../gen/ts/berth/v1/session_pb.js";
import type { ServiceClient } from "../client.ts";
import { callFailure } from "../failure.ts";
import { Keyboard } from "../terminal/keyboard.ts";

/** Which session is shown, and how. */
export interface ViewRequest {
  readonly workerId: string;
  readonly resourceType: string;
  readonly readOnly: boolean;
}

/** Codes of the close: the view ended; it failed. */
const ENDED = 4000;
const FAILED = 4001;
/** The longest reason of a close. */
const MAX_REASON_BYTES = 123;

/**
 * Carries a view between a session and a WebSocket: as fast as the slower side
 * takes it, each way. Ends with either of them, and with the signal.
 */
export async function bridgeView(
  client: ServiceClient,
  request: ViewRequest,
  socket: WebSocket,
  signal: AbortSignal,
): Promise<void> {
  const leave = new AbortController();
  const ended = AbortSignal.any([signal, leave.signal]);
  // Its close follows.
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
    // Resolves when the connection took it; one that is closed ends the view.
    await new Promise<void>((resolve) => socket.send(data, () => resolve()));
  }
}

/** Passes on what the page sends, in order and in as few calls as come in time. */
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
  // Cut between characters.
  const fits = new TextDecoder().decode(bytes.subarray(0, MAX_REASON_BYTES), { stream: true });
  socket.resume();
  socket.close(code, fits);
}

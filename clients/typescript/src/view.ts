import type { Connection } from "./connection.ts";
import { newRequestId } from "./connection.ts";
import { BerthError } from "./errors.ts";
import { piecesOf, readableOf } from "./streams.ts";
import type { ViewSessionResponse, ViewStarted } from "./v1/session_pb.js";

/**
 * A view of a session. The streams are like those of a socket and carry `protocol`, for a program such as noVNC. The
 * view ends when its readable is canceled, its writable is closed, or the session ends (SESSION_LOST).
 */
export interface SessionView {
  /** "rfb": the protocol of VNC (RFC 6143), as a server without authentication. */
  readonly protocol: string;
  /** Size of the picture in pixels when it started. */
  readonly width: number;
  readonly height: number;
  /** Whether it ignores pointer and key input. */
  readonly readOnly: boolean;
  readonly sessionId: string;
  readonly sandboxId: string;
  /** What the viewer sends. */
  readonly readable: ReadableStream<Uint8Array>;
  /** The viewer's input. */
  readonly writable: WritableStream<Uint8Array>;
}

/** Opens a view. */
export async function openView(
  connection: Connection,
  request: { readonly workerId: string; readonly resourceType: string; readonly readOnly: boolean },
  signal: AbortSignal | undefined,
): Promise<SessionView> {
  const stop = new AbortController();
  const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  const answers = connection.stream((options) => connection.sessions.viewSession(request, options), either);
  const first = await answers.next();
  if (first.done || first.value.event.case !== "started") {
    stop.abort();
    throw new BerthError("The service opened the view without saying what it shows.");
  }
  const { protocol, width, height, readOnly, sessionId, sandboxId, processId } = first.value.event
    .value as ViewStarted;
  return {
    protocol,
    width,
    height,
    readOnly,
    sessionId,
    sandboxId,
    readable: readableOf(() => dataOf(answers), undefined, stop),
    writable: inputOf(connection, processId, either),
  };
}

async function* dataOf(answers: AsyncIterable<ViewSessionResponse>): AsyncGenerator<Uint8Array> {
  for await (const { event } of answers) {
    if (event.case === "data") yield event.value;
    if (event.case === "exited") return;
  }
}

function inputOf(connection: Connection, processId: string, signal: AbortSignal): WritableStream<Uint8Array> {
  let offset = 0n;
  const send = async (data: Uint8Array, close: boolean): Promise<void> => {
    const request = { requestId: newRequestId(), processId, offset, data, close };
    const call = (options: object) => connection.processes.writeStdin(request, options);
    offset = (await connection.again(call, signal)).offset;
  };
  return new WritableStream<Uint8Array>({
    async write(data) {
      for await (const piece of piecesOf(data)) await send(piece, false);
    },
    close: () => send(new Uint8Array(), true),
  });
}

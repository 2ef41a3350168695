import type http2 from "node:http2";

/** How a session is looked after. */
export interface SessionOptions {
  /** How much a client may send ahead on the whole connection, in bytes. */
  readonly windowBytes: number;
  readonly pingIntervalMs: number;
  readonly pingTimeoutMs: number;
}

/** Opens the connection's window, and ends the session of a client that no longer answers pings. */
export function superviseSession(session: http2.ServerHttp2Session, options: SessionOptions): void {
  session.on("error", () => session.destroy());
  session.setLocalWindowSize(options.windowBytes);
  let deadline: NodeJS.Timeout | undefined;
  const interval = setInterval(() => {
    // A session that is closing refuses to ping.
    if (session.closed || session.destroyed || deadline) return;
    deadline = setTimeout(() => session.destroy(), options.pingTimeoutMs);
    session.ping(() => {
      clearTimeout(deadline);
      deadline = undefined;
    });
  }, options.pingIntervalMs);
  interval.unref();
  session.once("close", () => {
    clearInterval(interval);
    clearTimeout(deadline);
  });
}

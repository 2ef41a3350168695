import type net from "node:net";

/** What every HTTP/2 connection begins with (RFC 9113, 3.4). */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Finds out by its first bytes whether a client speaks HTTP/2 or HTTP/1, puts
 * the bytes back and says which. A connection that does not show it in time, or
 * ends before, is destroyed and `decided` is not called.
 */
export function sniffProtocol(
  socket: net.Socket,
  timeoutMs: number,
  decided: (version: "http1" | "http2") => void,
): void {
  let seen = Buffer.alloc(0);
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  const stop = () => {
    clearTimeout(timer);
    socket.off("readable", onReadable);
    socket.off("end", onGone);
    socket.off("close", onGone);
  };
  const onGone = () => {
    stop();
    socket.destroy();
  };
  const onReadable = () => {
    const chunk: Buffer | null = socket.read();
    if (chunk === null) return;
    seen = Buffer.concat([seen, chunk]);
    const compared = Math.min(seen.length, PREFACE.length);
    const alike = seen.compare(PREFACE, 0, compared, 0, compared) === 0;
    if (alike && compared < PREFACE.length) return;
    stop();
    socket.unshift(seen);
    decided(alike ? "http2" : "http1");
  };
  socket.on("readable", onReadable);
  socket.once("end", onGone);
  socket.once("close", onGone);
}

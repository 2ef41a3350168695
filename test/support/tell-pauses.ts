import { createServer } from "node:net";

/**
 * Imported by a program before its own code: says on the socket that
 * BERTH_TEST_PAUSE_SOCKET names, to whoever connects, how long the event loop
 * was held at most since somebody asked before, in milliseconds.
 *
 * What counts is the time that the loop's thread has computed without a turn of
 * a timer, and not the time that has passed: a machine with more to do than it
 * has processors takes the thread from its processor for a tenth of a second and
 * more, which is not a pause of the program's making. Waiting for a disk in the
 * middle of a turn is not seen.
 */
const TICK_MS = 2;

let most = 0;
let before = computedMs();

function computedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

function look(): void {
  const now = computedMs();
  most = Math.max(most, now - before);
  before = now;
}

setInterval(look, TICK_MS).unref();

createServer((socket) => {
  look();
  socket.on("error", () => {});
  socket.end(String(most));
  most = 0;
})
  .listen(process.env.BERTH_TEST_PAUSE_SOCKET)
  .unref();

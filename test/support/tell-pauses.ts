import { createServer } from "node:net";

/**
 * Imported by a program before its own code. Reports, on the socket BERTH_TEST_PAUSE_SOCKET, the longest time that the
 * event loop was blocked since the last request, in milliseconds.
 *
 * It measures the CPU time of the loop's thread without a turn of a timer, not the elapsed time: on an overloaded
 * machine the thread may lose its CPU for a tenth of a second and more, which is not a pause of the program. It does
 * not see waits for a disk in the middle of a turn.
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

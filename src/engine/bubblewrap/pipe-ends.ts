import { closeSync, constants, openSync } from "node:fs";
import { Socket } from "node:net";

/** The end to read from of a pipe that a process has as a descriptor. */
export function readerOf(pid: number, fd: number): Socket {
  const own = openSync(`/proc/${pid}/fd/${fd}`, constants.O_RDONLY | constants.O_NONBLOCK);
  return asSocket(own, { readable: true, writable: false });
}

/** The end to write to of a pipe that a process has as a descriptor. */
export function writerOf(pid: number, fd: number): Socket {
  const own = openSync(`/proc/${pid}/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK);
  return asSocket(own, { readable: false, writable: true });
}

/** Whoever is at the other end may go at any time, which the reading end tells. */
function asSocket(fd: number, ways: { readonly readable: boolean; readonly writable: boolean }): Socket {
  try {
    return new Socket({ fd, ...ways }).on("error", () => {});
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

import { closeSync, constants, openSync } from "node:fs";
import { quote } from "../../base/shell-quote.ts";
import { PipeSocket } from "../pipe-socket.ts";

/** The descriptor that shells on the host report to, in the format of {@link Reports}. */
export const REPORTS_FD = 3;

/**
 * Script text: creates pipes as these descriptors. Node could only pass sockets, which cannot be reopened as
 * `/dev/stdin`. A short here-document is a pipe that the shell fills by itself. It needs at least one line, which is
 * then read and dropped. The service opens the other ends through `/proc`.
 */
export function pipesText(fds: readonly number[]): string {
  const documents = fds.map((fd) => `${fd}<<E`).join(" ");
  return `exec ${documents}\n${"\nE\n".repeat(fds.length)}${fds.map((fd) => `read -r x <&${fd}\n`).join("")}`;
}

/** Script text: reopens pipes, with `<` to read, `>` to write, `<>` for both. */
export function reopenText(ways: Readonly<Record<number, "<" | ">" | "<>">>): string {
  const redirections = Object.entries(ways).map(([fd, way]) => `${fd}${way}/proc/self/fd/${fd}`);
  return redirections.join(" ");
}

/** Script text: reports the start of the shell. */
export function reportStartText(tag: number, child = ""): string {
  return `read -r x y </proc/self/stat\nprintf 's ${tag} %s ${child}\\n' $x >&${REPORTS_FD}\n`;
}

/** Script text: joins control groups. The shell must have one thread. */
export function joinText(files: readonly string[]): string {
  return files.map((file) => `echo 0 >${quote(file)} || exit 125\n`).join("");
}

/** Opens the read end of a pipe that a process has as a descriptor. */
export function readerOf(pid: number, fd: number): PipeSocket {
  return openEnd(`/proc/${pid}/fd/${fd}`, "readable");
}

/** Opens the write end of a pipe that a process has as a descriptor. */
export function writerOf(pid: number, fd: number): PipeSocket {
  return openEnd(`/proc/${pid}/fd/${fd}`, "writable");
}

/** The other end may close at any time; the reader sees that as EOF. */
function openEnd(file: string, direction: "readable" | "writable"): PipeSocket {
  const mode = direction === "readable" ? constants.O_RDONLY : constants.O_WRONLY;
  const fd = openSync(file, mode | constants.O_NONBLOCK);
  try {
    return new PipeSocket(fd, direction);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

import { closeSync, constants, openSync } from "node:fs";
import { Socket } from "node:net";

/** The descriptor over which shells of the host's report, as {@link Reports} has it. */
export const REPORTS_FD = 3;

/**
 * Has a shell make pipes of its own, as the descriptors given; Node could only
 * give it sockets, which nobody can open again as `/dev/stdin`. A document that
 * is read from a descriptor comes through a pipe, and where it is short, no
 * process writes it. It has to have a line, which is taken out again. Their
 * other ends are opened through `/proc`.
 */
export function pipesText(fds: readonly number[]): string {
  const documents = fds.map((fd) => `${fd}<<E`).join(" ");
  return `exec ${documents}\n${"\nE\n".repeat(fds.length)}${fds.map((fd) => `read -r x <&${fd}\n`).join("")}`;
}

/** Has a shell open its pipes again: `<` to read, `>` to write, `<>` for both. */
export function reopenText(ways: Readonly<Record<number, "<" | ">" | "<>">>): string {
  const redirections = Object.entries(ways).map(([fd, way]) => `${fd}${way}/proc/self/fd/${fd}`);
  return redirections.join(" ");
}

/** Has a shell report its start. */
export function reportStartText(tag: number, child = ""): string {
  return `read -r x y </proc/self/stat\nprintf 's ${tag} %s ${child}\\n' $x >&${REPORTS_FD}\n`;
}

/** Quotes a text for a shell. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

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

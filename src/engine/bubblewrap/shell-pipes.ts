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

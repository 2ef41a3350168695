import { holdsMounts } from "./mounts.ts";
import type { Tools } from "./tool.ts";

/** Names that one look finds at most; the rest is found by the next. */
const MAX_NAMES = 10_000;
const NAMES_AT_ONCE = 100;

/**
 * Removes what bears a name that `isLeftBehind` knows, from a tree that
 * sandboxes write to. `find` and `rm` go by open directories: no link that a
 * sandbox puts in the way is followed. Returns how many names were found.
 */
export async function sweepDirectory(
  tools: Tools,
  directory: string,
  isLeftBehind: (name: string) => boolean,
  signal: AbortSignal,
): Promise<number> {
  const start = ["find", ".", ...(holdsMounts(directory) ? ["-xdev"] : [])] as const;
  const names = new Set<string>();
  let rest = "";
  const candidates = tools.stream({
    argv: [...start, "-name", ".berth-*", "-printf", "%f\\0"],
    directory,
    signal,
  });
  for await (const chunk of candidates) {
    const found = (rest + chunk.toString("latin1")).split("\0");
    rest = found.pop() ?? "";
    for (const name of found) if (names.size < MAX_NAMES && isLeftBehind(name)) names.add(name);
  }
  const all = [...names];
  for (let at = 0; at < all.length; at += NAMES_AT_ONCE) {
    const either = all.slice(at, at + NAMES_AT_ONCE).flatMap((name) => ["-o", "-name", name]);
    const argv = [
      ...start,
      "(",
      ...either.slice(1),
      ")",
      "-prune",
      "-execdir",
      "rm",
      "-rf",
      "--",
      "{}",
      "+",
    ] as const;
    await tools.run({ argv, directory, signal });
  }
  return names.size;
}

import { realpathSync } from "node:fs";
import path from "node:path";

/** Whether `child` is `parent` or lies below it; both absolute and resolved. */
export function isWithin(child: string, parent: string): boolean {
  const relative = path.relative(parent, child);
  return relative === "" || !(relative === ".." || relative.startsWith("../"));
}

/** The real path of an absolute one, whose last parts may not exist yet. */
export function realPlace(place: string): string {
  try {
    return realpathSync(place);
  } catch {
    const parent = path.dirname(place);
    return parent === place ? place : path.join(realPlace(parent), path.basename(place));
  }
}

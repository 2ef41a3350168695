// Whether what package-lock.json asks for is installed.
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

/** Compares what npm noted when it installed with what the lock file says. */
export function packagesAreInstalled(root) {
  const noted = path.join(root, "node_modules", ".package-lock.json");
  if (!existsSync(noted)) return false;
  const installed = read(noted);
  const wanted = read(path.join(root, "package-lock.json"));
  return Object.entries(wanted).every(
    ([place, { version, optional }]) => place === "" || optional || installed[place]?.version === version,
  );
}

function read(file) {
  return JSON.parse(readFileSync(file, "utf8")).packages;
}

import { readFileSync } from "node:fs";

/** The version of the program. In sources and in the built program, package.json is one folder up. */
export const VERSION: string = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
).version;

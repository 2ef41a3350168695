import { readFileSync } from "node:fs";
import path from "node:path";

const SETTING = /^export (\w+)="\$\{\w+-(\w+)\}"$/gm;

/** The variables that a checkout's launcher, `bin/berth`, sets for the program if they are not set. */
export function launcherSettings(checkout: string): Record<string, string> {
  const script = readFileSync(path.join(checkout, "bin/berth"), "utf8");
  return Object.fromEntries([...script.matchAll(SETTING)].map(([, name = "", value = ""]) => [name, value]));
}

import { readdirSync, readFileSync } from "node:fs";

const FOLDER = new URL("driver/", import.meta.url);
const BOOT = "boot.py";

function read(name: string): string {
  return readFileSync(new URL(name, FOLDER), "utf8");
}

/** The modules of the driver, in the form in which {@link DRIVER_ARGV} reads them from stdin. */
export const DRIVER_SOURCE: Buffer = Buffer.from(
  JSON.stringify(
    Object.fromEntries(
      readdirSync(FOLDER)
        .filter((name) => name.endsWith(".py") && name !== BOOT)
        .map((name) => [name.slice(0, -".py".length), read(name)]),
    ),
  ),
);

/** How the driver starts: with python3 alone, and without modules from its environment. */
export const DRIVER_ARGV: readonly string[] = [
  "python3",
  "-I",
  "-S",
  "-c",
  read(BOOT),
  String(DRIVER_SOURCE.length),
];

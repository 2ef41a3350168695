import { readdirSync, readFileSync } from "node:fs";

const FOLDER = new URL("driver/", import.meta.url);
const BOOT = "boot.py";

function read(name: string): string {
  return readFileSync(new URL(name, FOLDER), "utf8");
}

/** The modules of the driver, as {@link DRIVER_ARGV} reads them from its stdin. */
export const DRIVER_SOURCE: Buffer = Buffer.from(
  JSON.stringify(
    Object.fromEntries(
      readdirSync(FOLDER)
        .filter((name) => name.endsWith(".py") && name !== BOOT)
        .map((name) => [name.slice(0, -".py".length), read(name)]),
    ),
  ),
);

/** How the driver is started: python3 alone, whatever its environment says of other modules. */
export const DRIVER_ARGV: readonly string[] = [
  "python3",
  "-I",
  "-S",
  "-c",
  read(BOOT),
  String(DRIVER_SOURCE.length),
];

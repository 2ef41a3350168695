import { readdirSync, readFileSync } from "node:fs";

const FOLDER = new URL("driver/", import.meta.url);
const BOOT = "boot.py";

function read(name: string): string {
  return readFileSync(new URL(name, FOLDER), "utf8");
}

/** The modules of the driver, in the form in which {@link driverArgv} reads them from stdin. */
export const DRIVER_SOURCE: Buffer = Buffer.from(
  JSON.stringify(
    Object.fromEntries(
      readdirSync(FOLDER)
        .filter((name) => name.endsWith(".py") && name !== BOOT)
        .map((name) => [name.slice(0, -".py".length), read(name)]),
    ),
  ),
);

const ARGV = ["python3", "-I", "-S", "-c", read(BOOT), String(DRIVER_SOURCE.length)];

/**
 * How the driver starts: with python3 alone, and without modules from its environment. @param directory where it keeps
 * its files, which it creates.
 */
export function driverArgv(directory: string): readonly string[] {
  return [...ARGV, directory];
}

/**
 * Removes what a desktop left in $1, its directory, if its driver was killed: also the lock and the socket of its
 * display, unless another server has them. See guard.py.
 */
export const REMOVE_DESKTOP = `
{ read -r number && read -r guard; } 2>/dev/null <"$1/display" && read -r owner 2>/dev/null <"/tmp/.X$number-lock" &&
  [ "$owner" = "$guard" ] && rm -f -- "/tmp/.X11-unix/X$number" "/tmp/.X$number-lock"
rm -rf -- "$1"
`;

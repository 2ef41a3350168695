import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { endianness } from "node:os";

/** 127.0.0.1, and the state of a connection that both ends hold, as the kernel's table of connections has them. */
const LOOPBACK = endianness() === "LE" ? "0100007F" : "7F000001";
const ESTABLISHED = "01";
/** The column of the table with the user's id. */
const USER = 7;

/** The id of the user at the other end of a connection over 127.0.0.1. Undefined: it is not known. */
export async function userBehind({
  remoteAddress,
  remotePort = 0,
  localPort = 0,
}: Pick<Socket, "remoteAddress" | "remotePort" | "localPort">): Promise<number | undefined> {
  if (remoteAddress !== "127.0.0.1") return undefined;
  const end = (port: number) => `${LOOPBACK}:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const wanted = ` ${end(remotePort)} ${end(localPort)} ${ESTABLISHED} `;
  const table = await readFile("/proc/net/tcp", "latin1");
  const id = table
    .split("\n")
    .find((row) => row.includes(wanted))
    ?.trim()
    .split(/\s+/)[USER];
  return id === undefined ? undefined : Number(id);
}

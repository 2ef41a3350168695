import { execFileSync } from "node:child_process";
import { closeSync, constants, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { onTestFinished } from "vitest";

/** A named pipe, until the test is finished. */
export function makeFifo(): string {
  const directory = mkdtempSync(path.join(tmpdir(), "berth-fifo-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = path.join(directory, "fifo");
  execFileSync("mkfifo", [file]);
  return file;
}

/** Opens both ends of a pipe, until the test is finished. Reads and writes never wait. */
export function openFifo(file: string): number {
  const fd = openSync(file, constants.O_RDWR | constants.O_NONBLOCK);
  onTestFinished(() => closeSync(fd));
  return fd;
}

/** Fills a pipe, and returns how many bytes it took. */
export function fillPipe(fd: number): number {
  const page = Buffer.alloc(4096);
  let bytes = 0;
  try {
    while (bytes < 1 << 30) bytes += writeSync(fd, page);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
  }
  return bytes;
}

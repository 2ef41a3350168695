import { Socket } from "node:net";

/** A stream for one end of a pipe. It reports errors only by closing. */
export class PipeSocket extends Socket {
  /** Its descriptor, which is valid until it is destroyed. */
  readonly fd: number;

  constructor(fd: number, direction: "readable" | "writable") {
    super({ fd, readable: direction === "readable", writable: direction === "writable" });
    this.fd = fd;
    this.on("error", () => {});
  }
}

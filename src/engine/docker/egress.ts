import type { Daemon } from "./daemon.ts";

/** stub */
export class Egress {
  constructor(_daemon: Daemon) {}
  async available(): Promise<boolean> {
    return false;
  }
  async ensure(_signal?: AbortSignal): Promise<string> {
    return "none";
  }
}

import type { Cell, Result, Task } from "./cells.ts";

/** What a call goes to. */
export interface Target {
  /** `host:port` */
  readonly address: string;
  readonly sandboxId: string;
  readonly signal: AbortSignal;
}

/** A client of one library, ready to make calls. */
export interface ReadyClient {
  /** The library and its version, as the table shows it. */
  readonly version: string;
  call(task: Task, target: Target): Promise<Result>;
  dispose?(): Promise<void>;
}

/** A row of the table. */
export interface InteropClient {
  readonly name: string;
  /** Cells that the client cannot fill by its nature, and why. */
  readonly cannot?: Partial<Readonly<Record<Cell, string>>>;
  /** Installs and builds what it is made of. @throws NotThere for a tool that is missing */
  prepare(options: PrepareOptions): Promise<ReadyClient>;
}

export interface PrepareOptions {
  /** Whether missing tools may be installed. */
  readonly agreed: boolean;
  readonly signal: AbortSignal;
}

/** A tool is missing; the message names the command that installs it. */
export class NotThere extends Error {}

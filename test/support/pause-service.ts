import { once } from "node:events";
import { connect } from "node:net";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { MAIN, ServeProcess } from "./program.ts";
import { newDataDir } from "./settings.ts";

/** A service that reports how long its event loop was blocked: see tell-pauses.ts. */
export class PauseService {
  readonly process: ServeProcess;
  readonly #socket: string;

  private constructor(process: ServeProcess, socket: string) {
    this.process = process;
    this.#socket = socket;
  }

  static async start(args: readonly string[]): Promise<PauseService> {
    const socket = path.join(newDataDir(), "pauses");
    const tell = fileURLToPath(new URL("tell-pauses.ts", import.meta.url));
    const env = { BERTH_TEST_PAUSE_SOCKET: socket, BERTH_LOG_LEVEL: "error" };
    return new PauseService(await ServeProcess.start(args, env, { entry: ["--import", tell, MAIN] }), socket);
  }

  /** The longest pause since the last call, in milliseconds. */
  async longestPause(): Promise<number> {
    const socket = connect(this.#socket);
    await once(socket, "connect");
    return Number(await text(socket));
  }
}

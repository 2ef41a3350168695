import { readFile, rm } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { eventually } from "./eventually.ts";
import { MAIN, ServeProcess } from "./program.ts";
import { newDataDir } from "./settings.ts";

/** Resident memory of a process, in bytes. */
export async function memoryOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const found = /^VmRSS:\s+(\d+) kB$/m.exec(status);
  if (found === null) throw new Error(`process ${pid} does not run any more`);
  return Number(found[1]) * 1024;
}

/** Watches the memory of a process. The returned function stops that and returns the maximum. */
export function watchMemory(pid: number, everyMs = 20): () => Promise<number> {
  let most = 0;
  let over = false;
  const look = async (): Promise<void> => {
    while (!over) {
      most = Math.max(most, await memoryOf(pid));
      await sleep(everyMs);
    }
  };
  const looking = look();
  // A failure is reported to the caller that stops the watch.
  looking.catch(() => {});
  return async () => {
    over = true;
    await looking;
    return most;
  };
}

/** A service that reports its live memory, without garbage. */
export class MeasuredService {
  readonly process: ServeProcess;
  readonly #file: string;

  private constructor(process: ServeProcess, file: string) {
    this.process = process;
    this.#file = file;
  }

  static async start(args: readonly string[] = []): Promise<MeasuredService> {
    const file = path.join(newDataDir(), "memory");
    const tell = fileURLToPath(new URL("tell-memory.ts", import.meta.url));
    const entry = ["--expose-gc", "--import", tell, MAIN];
    return new MeasuredService(
      await ServeProcess.start(args, { BERTH_TEST_MEMORY_FILE: file }, { entry }),
      file,
    );
  }

  /** Bytes in its heap and outside of it that are still referenced. */
  async live(): Promise<number> {
    await rm(this.#file, { force: true });
    this.process.signal("SIGUSR2");
    const read = () => readFile(this.#file, "utf8").catch(() => undefined);
    return Number(await eventually(read));
  }
}

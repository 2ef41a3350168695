import { once } from "node:events";
import { parentPort, Worker, workerData } from "node:worker_threads";
import { ATTACKS, type AttackName, type Siege, type Target } from "./attacks.ts";

/** A message of an attacker: everything is sent, or its state. */
interface Report {
  readonly count: number;
  readonly ended: number;
}

/** An attack in its own thread, so that it does not delay other clients in this process. */
export class Attacker implements AsyncDisposable {
  readonly #thread: Worker;
  /** Resolves when everything is sent. */
  readonly sent: Promise<unknown>;

  constructor(name: AttackName, target: Target) {
    this.#thread = new Worker(new URL(import.meta.url), { workerData: { name, target } });
    this.sent = once(this.#thread, "message");
  }

  /** How much it has sent or holds open, and how much of that the service has ended. */
  async report(): Promise<Report> {
    await this.sent;
    const answer = once(this.#thread, "message");
    this.#thread.postMessage("report");
    return (await answer)[0] as Report;
  }

  /** Releases what it holds open. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#thread.terminate();
  }
}

if (parentPort !== null && workerData?.name in ATTACKS) {
  const { name, target } = workerData as { name: AttackName; target: Target };
  const siege: Siege = await ATTACKS[name](target);
  const report = (): void => parentPort?.postMessage({ count: siege.count, ended: siege.ended() });
  parentPort.on("message", report);
  report();
}

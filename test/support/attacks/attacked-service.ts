import { readdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../client.ts";
import { eventually } from "../eventually.ts";
import { percentile, timed } from "../measure.ts";
import { watchMemory } from "../memory.ts";
import { processorShare } from "../processor-share.ts";
import { ServeProcess } from "../program.ts";
import { Attacker } from "./attacker.ts";
import type { AttackName } from "./attacks.ts";

/** Durations of calls, in milliseconds, in order. */
type Times = number[];

/** Other clients' calls and the service's memory, without and with an attack. */
export interface Measured {
  readonly unary: { readonly quiet: number; readonly attacked: number };
  readonly exec: { readonly quiet: number; readonly attacked: number };
  /** How far its resident memory rose above its earlier maximum, in bytes. */
  readonly grownBytes: number;
  /** The highest {@link processorShare} without the attack. */
  readonly share: number;
  /** The state of each attack when the calls made during it were done. */
  readonly reports: readonly AttackReport[];
}

/** The state of an attack. */
export interface AttackReport {
  /** How much it has sent or holds open. */
  readonly count: number;
  /** How much of that the service has ended. */
  readonly ended: number;
  /** Descriptors that the service has open because of it: for its connections and its commands. */
  readonly descriptors: number;
  /** Its running commands. */
  readonly commands: number;
}

const TURNS = 3;
/** The minimum number of unary calls, and of commands, in each turn. */
const CALLS = 80;

/** A service in its own process, with a sandbox and a well-behaved client. */
export class AttackedService implements AsyncDisposable {
  readonly #process: ServeProcess;
  readonly #client: Client;
  readonly #sandboxId: string;

  private constructor(process: ServeProcess, client: Client, sandboxId: string) {
    this.#process = process;
    this.#client = client;
    this.#sandboxId = sandboxId;
  }

  static async start(): Promise<AttackedService> {
    const process = await ServeProcess.start(["--engine", "bubblewrap"]);
    const client = new Client(process.address);
    const { sandbox_id: sandboxId } = await client.createSandbox();
    return new AttackedService(process, client, sandboxId);
  }

  /**
   * Measures the client's calls alternately alone and during the attack. `before` is ordinary work during such calls.
   */
  async measure(name: AttackName, before = async () => {}): Promise<Measured> {
    const { pid, address } = this.#process;
    const quiet = { unary: [] as Times, exec: [] as Times };
    const attacked = { unary: [] as Times, exec: [] as Times };
    const reports: AttackReport[] = [];
    const shares: number[] = [];
    const descriptors = await this.descriptors();
    const ordinaryMemory = watchMemory(pid);
    await before();
    await this.#calls({ unary: [], exec: [] });
    const ordinaryBytes = await ordinaryMemory();
    const attackedMemory = watchMemory(pid);
    for (let turn = 0; turn < TURNS; turn++) {
      shares.push(await processorShare());
      await this.#calls(quiet);
      await using attacker = new Attacker(name, { address, sandboxId: this.#sandboxId });
      let sent = false;
      const sending = attacker.sent.finally(() => {
        sent = true;
      });
      await Promise.all([sending, this.#calls(attacked, () => !sent)]);
      // What was sent may not have started its command yet.
      if (name.startsWith("stopped")) await eventually(async () => (await this.runningCommands()) > 0);
      reports.push({
        ...(await attacker.report()),
        descriptors: (await this.descriptors()) - descriptors,
        commands: await this.runningCommands(),
      });
    }
    return {
      unary: { quiet: percentile(quiet.unary, 0.99), attacked: percentile(attacked.unary, 0.99) },
      exec: { quiet: percentile(quiet.exec, 0.99), attacked: percentile(attacked.exec, 0.99) },
      share: Math.max(...shares),
      grownBytes: (await attackedMemory()) - ordinaryBytes,
      reports,
    };
  }

  /** Makes a client read, twice, as much output as a command may write ahead of its reader. */
  async carryOutput(): Promise<void> {
    await this.#client.exec(this.#sandboxId, "head -c 134217728 /dev/zero").result;
  }

  /** Open descriptors of its process, for connections and commands. */
  async descriptors(): Promise<number> {
    return (await readdir(`/proc/${this.#process.pid}/fd`)).length;
  }

  /** The same after this many commands ran at once, whose shells stay open for a while. */
  async descriptorsAfter(commands: number): Promise<number> {
    await Promise.all(
      Array.from({ length: commands }, () => this.#client.exec(this.#sandboxId, "sleep 1").result),
    );
    await eventually(async () => (await this.runningCommands()) === 0);
    return this.descriptors();
  }

  /** Running processes in its sandbox. */
  async runningCommands(): Promise<number> {
    const { processes } = await this.#client.call("ProcessService/ListProcesses", {
      sandbox_id: this.#sandboxId,
    });
    return processes.filter(({ exit_status: exit }) => exit === null).length;
  }

  /** The output of a command for a client that has just connected. */
  async freshOutput(): Promise<string> {
    const client = new Client(this.#process.address);
    try {
      return await client.output(this.#sandboxId, "echo fine");
    } finally {
      client.close();
    }
  }

  async #calls(times: { unary: Times; exec: Times }, more = () => false): Promise<void> {
    for (let call = 0; call < CALLS || more(); call++) {
      times.unary.push(
        await timed(() => this.#client.call("SandboxService/GetSandbox", { sandbox_id: this.#sandboxId })),
      );
      times.exec.push(
        await timed(async () => {
          const { exit } = await this.#client.exec(this.#sandboxId, "true").result;
          if (exit.exit_code !== 0) throw new Error(`true ended otherwise: ${JSON.stringify(exit)}`);
        }),
      );
      // Other clients do not call in a tight loop.
      await sleep(1);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.close();
    await this.#process.stop();
  }
}

import { readdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../client.ts";
import { watchMemory } from "../memory.ts";
import { percentile } from "../percentile.ts";
import { processorShare } from "../processor-share.ts";
import { ServeProcess } from "../program.ts";
import { Attacker } from "./attacker.ts";
import type { AttackName } from "./attacks.ts";

/** How long calls took, in milliseconds, in order. */
type Times = number[];

/** The 99th of a hundred calls, in milliseconds. */
export interface CallTimes {
  readonly quiet: number;
  readonly attacked: number;
  /** Meanwhile, of the same calls to another service on this machine: what the attacker's own work costs them. */
  readonly elsewhere: number;
}

/** What other clients' calls and the service's memory were like, without and with an attack. */
export interface Measured {
  readonly unary: CallTimes;
  readonly exec: CallTimes;
  /** How far its resident memory was at most above the most that it was before, in bytes. */
  readonly grownBytes: number;
  /** The most that {@link processorShare} said, while there was no attack. */
  readonly share: number;
  /** How each of the attacks stood when the calls beside it were done. */
  readonly reports: readonly AttackReport[];
}

/** How an attack stands. */
export interface AttackReport {
  /** What it sent or holds. */
  readonly count: number;
  /** How much of that the service has ended by itself. */
  readonly ended: number;
  /** Descriptors that the service has open for it: its connections, and what its commands need. */
  readonly descriptors: number;
  /** Its commands that run. */
  readonly commands: number;
}

const TURNS = 3;
/** Of unary calls and of commands, in each turn at least. */
const CALLS = 80;

/** A service of its own process, with a sandbox and a client that is nobody's enemy. */
export class AttackedService implements AsyncDisposable {
  readonly #process: ServeProcess;
  readonly #client: Client;
  readonly #sandboxId: string;
  /** Nobody attacks it. */
  readonly #other: AttackedService | undefined;

  private constructor(process: ServeProcess, client: Client, sandboxId: string, other?: AttackedService) {
    this.#process = process;
    this.#client = client;
    this.#sandboxId = sandboxId;
    this.#other = other;
  }

  static async start(): Promise<AttackedService> {
    return AttackedService.#start(await AttackedService.#start());
  }

  static async #start(other?: AttackedService): Promise<AttackedService> {
    const process = await ServeProcess.start(["--engine", "bubblewrap"]);
    const client = new Client(process.address);
    const { sandbox_id: sandboxId } = await client.createSandbox();
    return new AttackedService(process, client, sandboxId, other);
  }

  /** Measures the calls of its client in turns: alone, and beside the attack. `before` is ordinary use beside such calls. */
  async measure(name: AttackName, before = async () => {}): Promise<Measured> {
    const { pid, address } = this.#process;
    const other = this.#other;
    if (other === undefined) throw new Error("there is no other service to compare with");
    const quiet = { unary: [] as Times, exec: [] as Times };
    const attacked = { unary: [] as Times, exec: [] as Times };
    const elsewhere = { unary: [] as Times, exec: [] as Times };
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
      await Promise.all([this.#calls(quiet), other.#calls({ unary: [], exec: [] })]);
      await using attacker = new Attacker(name, { address, sandboxId: this.#sandboxId });
      let sent = false;
      const sending = attacker.sent.finally(() => {
        sent = true;
      });
      const isSending = () => !sent;
      await Promise.all([sending, this.#calls(attacked, isSending), other.#calls(elsewhere, isSending)]);
      reports.push({
        ...(await attacker.report()),
        descriptors: (await this.descriptors()) - descriptors,
        commands: await this.runningCommands(),
      });
    }
    const timesOf = (kind: "unary" | "exec"): CallTimes => ({
      quiet: percentile(quiet[kind], 0.99),
      attacked: percentile(attacked[kind], 0.99),
      elsewhere: percentile(elsewhere[kind], 0.99),
    });
    return {
      unary: timesOf("unary"),
      exec: timesOf("exec"),
      share: Math.max(...shares),
      grownBytes: (await attackedMemory()) - ordinaryBytes,
      reports,
    };
  }

  /** Has a client read as much output as a command may be ahead of its reader, twice. */
  async carryOutput(): Promise<void> {
    await this.#client.exec(this.#sandboxId, "head -c 134217728 /dev/zero").result;
  }

  /** Descriptors that its process has open: connections, and what belongs to commands. */
  async descriptors(): Promise<number> {
    return (await readdir(`/proc/${this.#process.pid}/fd`)).length;
  }

  /** Processes in its sandbox that still run. */
  async runningCommands(): Promise<number> {
    const { processes } = await this.#client.call("ProcessService/ListProcesses", {
      sandbox_id: this.#sandboxId,
    });
    return processes.filter(({ exit_status: exit }) => exit === null).length;
  }

  /** What a client that comes only now gets of a command. */
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
      // Other clients are not in a loop.
      await sleep(1);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.close();
    await this.#process.stop();
    await this.#other?.[Symbol.asyncDispose]();
  }
}

async function timed(call: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await call();
  return performance.now() - begin;
}

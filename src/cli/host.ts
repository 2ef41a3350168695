import { Command, Option } from "commander";
import type { ServiceClient } from "./client.ts";
import type { Interrupts, Io } from "./io.ts";
import type { ServiceParts } from "./service.ts";
import { DEFAULT_ADDRESS, parseServiceAddress } from "./service-address.ts";

/** What every command is given. */
export interface CommandHost {
  readonly io: Io;
  readonly interrupts: Interrupts;
  /** The service that the program can be. */
  readonly service: ServiceParts;
  /** Makes a commander action of one that returns the program's exit code. */
  action<A extends unknown[]>(run: (...args: A) => Promise<number>): (...args: A) => Promise<void>;
}

/** The flags of every command that calls a service. */
export interface ClientFlags {
  readonly address?: string;
  readonly json?: boolean;
}

const ADDRESS = new Option(
  "--address <address>",
  `the service: HOST:PORT, unix:PATH or https://… (env BERTH_ADDRESS, default ${DEFAULT_ADDRESS})`,
);
const JSON_OUTPUT = new Option("--json", "write JSON, in the names of the API");

/** The options of the client, which a person may also write before the command. */
export const CLIENT_OPTIONS: readonly Option[] = [ADDRESS, JSON_OUTPUT];

/** A command that calls a service. */
export function serviceCommand(name: string): Command {
  return new Command(name).addOption(ADDRESS);
}

/** A command that calls a service and prints the result, as JSON on request. */
export function clientCommand(name: string): Command {
  return serviceCommand(name).addOption(JSON_OUTPUT);
}

/** Calls a service and describes failures in words; `failureCode` is then the exit code. */
export async function withClient(
  { io, interrupts }: CommandHost,
  flags: ClientFlags,
  failureCode: number,
  work: (client: ServiceClient) => Promise<number>,
): Promise<number> {
  interrupts.followOutput();
  const address = parseServiceAddress(flags.address ?? (io.env.BERTH_ADDRESS || DEFAULT_ADDRESS));
  // Help and the like do not wait for them.
  const [{ connectTo }, { callFailure }] = await Promise.all([import("./client.ts"), import("./failure.ts")]);
  const client = connectTo(address);
  try {
    return await work(client);
  } catch (error) {
    throw callFailure(error, address, failureCode);
  } finally {
    client.close();
  }
}

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll } from "vitest";
import { Client } from "./client.ts";
import { removeContainers } from "./docker.ts";
import { ServeProcess, type ServeSettings } from "./program.ts";
import { newInstance, ownLoopback } from "./settings.ts";

/** How the process of a {@link LastingService} is started. */
interface LastingSettings extends Pick<ServeSettings, "entry"> {
  readonly args?: readonly string[];
}

/** A service whose process may be killed and started again. Its data directory, instance and address stay. */
export class LastingService implements AsyncDisposable {
  readonly instance = newInstance();
  readonly dataDir: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #settings: LastingSettings;
  #process: ServeProcess | undefined;
  #address = `${ownLoopback()}:0`;

  private constructor(dataDir: string, env: Readonly<Record<string, string>>, settings: LastingSettings) {
    this.dataDir = dataDir;
    this.#env = env;
    this.#settings = settings;
  }

  static async start(
    env: Readonly<Record<string, string>> = {},
    settings: LastingSettings = {},
  ): Promise<LastingService> {
    const service = new LastingService(await mkdtemp(path.join(tmpdir(), "berth-data-")), env, settings);
    await service.begin();
    return service;
  }

  get address(): string {
    return this.#address;
  }

  /** Starts the process if it does not run. */
  async begin(): Promise<void> {
    const env = {
      ...this.#env,
      BERTH_LISTEN: this.#address,
      BERTH_INSTANCE: this.instance,
      BERTH_DATA_DIR: this.dataDir,
    };
    const { args, ...more } = this.#settings;
    this.#process = await ServeProcess.start(args, env, more);
    this.#address = this.#process.address;
  }

  /** Resolves when the process has ended by itself, with the signal that killed it. */
  async ended(): Promise<NodeJS.Signals | null | undefined> {
    return (await this.#process?.end)?.signal;
  }

  /** Kills the process with SIGKILL. */
  async kill(): Promise<void> {
    await this.#process?.stop("SIGKILL");
  }

  /** Stops the process like an operator. Returns its stderr. */
  async stop(): Promise<string> {
    return (await this.#process?.stop())?.stderr ?? "";
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process?.dispose();
    await removeContainers(this.instance);
    await rm(this.dataDir, { recursive: true, force: true });
  }
}

/** A {@link LastingService} with a client of its process. */
export interface LastingApp {
  readonly client: Client;
  readonly instance: string;
  /** Kills the process with SIGKILL. */
  kill(): Promise<void>;
  /** Starts the process if it does not run. */
  begin(): Promise<void>;
}

/** Gives the tests of a file one service, which is started before the first of them. */
export function useLastingApp(env: Readonly<Record<string, string>>): LastingApp {
  let service: LastingService | undefined;
  let client: Client | undefined;
  const get = <T>(part: T | undefined): T => {
    if (part === undefined) throw new Error("the service is not started before the tests run");
    return part;
  };
  beforeAll(async () => {
    service = await LastingService.start(env);
    client = new Client(service.address);
  });
  afterAll(async () => {
    client?.close();
    await service?.[Symbol.asyncDispose]();
  });
  return {
    get client() {
      return get(client);
    },
    get instance() {
      return get(service).instance;
    },
    kill: async () => {
      get(client).close();
      await get(service).kill();
    },
    begin: async () => {
      await get(service).begin();
      client = new Client(get(service).address);
    },
  };
}

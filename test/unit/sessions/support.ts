import { z } from "zod";
import { untilAborted } from "../../../src/base/async.ts";
import { invalidArgument } from "../../../src/base/errors.ts";
import type { SandboxManager } from "../../../src/sandboxes/manager.ts";
import { type TenantQuota, TenantQuotas } from "../../../src/sandboxes/tenant-quotas.ts";
import {
  defineTool,
  type SessionBackend,
  type SessionHome,
  type SessionHost,
  type SessionType,
  succeeded,
  type ToolCall,
  type ToolResult,
} from "../../../src/sessions/backend.ts";
import { SessionManager } from "../../../src/sessions/manager.ts";
import type { RequestedSession, SessionResult, SessionView } from "../../../src/sessions/session.ts";
import { ToolCatalog } from "../../../src/sessions/tool-catalog.ts";
import {
  NO_OBSERVER,
  type ToolReport,
  type ToolRequest,
  ToolRunner,
} from "../../../src/sessions/tool-runner.ts";
import { HOST_MOUNTS } from "../../support/host-mounts.ts";
import { settled } from "../../support/manual-clock.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { mortal } from "../../support/mortal.ts";
import { newManager, newWorld, OWNER } from "../sandboxes/support.ts";

export const never = new AbortController().signal;
export const WORKER = "alice";
/** Default time to live of sessions. */
export const TTL_MS = 600_000;
/** Default grace for calls when a session ends. */
export const GRACE_MS = 3_000;

/** A backend that dies when a test says so. */
export class FakeBackend implements SessionBackend {
  alive = true;
  /** For each cleanup, whether the sandbox ended too. */
  readonly cleanups: boolean[] = [];
  /** How often it was asked to complete work that outlives it. */
  finishes = 0;
  readonly host: SessionHost;
  readonly config: unknown;
  readonly #type: FakeType;

  constructor(type: FakeType, host: SessionHost, config: unknown) {
    this.#type = type;
    this.host = host;
    this.config = config;
  }

  async finish(): Promise<void> {
    this.finishes++;
    await this.#type.finishing();
  }

  async cleanup(sandboxEnds: boolean): Promise<void> {
    this.alive = false;
    this.cleanups.push(sandboxEnds);
    await this.#type.cleaningUp();
  }
}

/** A run of `wait` that ends when a test says so. */
export interface FakeCall {
  readonly name: string;
  readonly backend: FakeBackend;
  readonly call: ToolCall;
  finish(result?: Partial<ToolResult>): void;
  fail(error: Error): void;
}

/** A type of session whose backends and calls a test controls. */
export class FakeType implements SessionType {
  readonly name: string;
  readonly description = "";
  readonly config = z.strictObject({
    custom_name: z.string().optional(),
    size: z.number().optional(),
    keeps: z.boolean().optional(),
  });
  readonly sandbox = {};
  takesSecrets = false;
  readonly prestart?: SessionType["prestart"];
  readonly adopt?: SessionType["adopt"];
  /** Backends, in the order in which they were initialized. */
  readonly backends: FakeBackend[] = [];
  /** Runs of `wait`, in the order in which they started. */
  readonly calls: FakeCall[] = [];
  /** Awaited before a backend is ready. If it throws, the initialize fails. */
  initializing: (signal: AbortSignal) => Promise<void> = async () => {};
  /** Awaited before a cleanup. If it throws, the end fails. */
  finishing: () => Promise<void> = async () => {};
  /** Awaited in each cleanup. If it throws, the cleanup fails. */
  cleaningUp: () => Promise<void> = async () => {};
  readonly tools = [
    defineTool({
      name: "wait",
      description: "Runs until the test ends it.",
      params: z.strictObject({
        name: z.string(),
        timeout_ms: z.number().optional(),
        default_timeout_ms: z.number().optional(),
      }),
      isCommand: true,
      timeoutMs: (params) => params.timeout_ms,
      defaultTimeoutMs: (params) => params.default_timeout_ms,
      run: (backend: FakeBackend, { name }, call) => {
        const { promise, resolve, reject } = Promise.withResolvers<ToolResult>();
        this.calls.push({
          name,
          backend,
          call,
          finish: (result = {}) => resolve(succeeded(name, result)),
          fail: reject,
        });
        return untilAborted(promise, AbortSignal.any([call.signal, call.timeout]));
      },
    }),
    defineTool({
      name: "answer",
      description: "Says which backend it runs on.",
      params: z.strictObject({}),
      run: async (backend: FakeBackend, _, { restarted }) =>
        succeeded({ backend: this.backends.indexOf(backend), restarted }),
    }),
  ];

  constructor(name: string) {
    this.name = name;
  }

  check(config: unknown, { keptDir }: SessionHome): void {
    const { keeps } = config as { readonly keeps?: boolean };
    if (keeps && keptDir === undefined) throw invalidArgument("config.keeps", "needs a place to keep files.");
  }

  async initialize(host: SessionHost, config: unknown, signal: AbortSignal): Promise<FakeBackend> {
    await untilAborted(this.initializing(signal), signal);
    const backend = new FakeBackend(this, host, config);
    this.backends.push(backend);
    return backend;
  }

  /** Names of the runs of `wait` that have started. */
  get started(): string[] {
    return this.calls.map(({ name }) => name);
  }

  /** The newest run of `wait` with this name. */
  call(name: string): FakeCall {
    const found = this.calls.findLast((call) => call.name === name);
    if (found === undefined) throw new Error(`the call ${name} has not started`);
    return found;
  }

  /** The newest backend. */
  get backend(): FakeBackend {
    const last = this.backends.at(-1);
    if (last === undefined) throw new Error(`no backend of ${this.name} was initialized`);
    return last;
  }
}

/**
 * A service's sessions and sandboxes, with an engine and a clock that a test controls, and a store that outlives the
 * service.
 */
export class SessionBench {
  readonly world = newWorld();
  readonly shell = new FakeType("shell");
  readonly notebook = new FakeType("notebook");
  log = new MemoryLog();
  /** Whether sandboxes seem to be ending. */
  isEnding = false;
  /** Of each tenant's sessions. */
  quota: TenantQuota = {};
  quotas!: TenantQuotas;
  sandboxes!: SandboxManager;
  sessions!: SessionManager;
  tools!: ToolRunner;
  #alive = { yes: true };
  #stop = (): void => {};
  readonly #maxSandboxes: number;

  private constructor(maxSandboxes: number) {
    this.#maxSandboxes = maxSandboxes;
  }

  static async start({ maxSandboxes = 100 } = {}): Promise<SessionBench> {
    const bench = new SessionBench(maxSandboxes);
    await bench.begin();
    return bench;
  }

  get clock() {
    return this.world.clock;
  }

  get engine() {
    return this.world.engine;
  }

  /** Kills the service and starts it again. */
  async restart(
    options: { readonly downMs?: number; readonly types?: readonly FakeType[] } = {},
  ): Promise<void> {
    await this.kill();
    await this.clock.advance(options.downMs ?? 0);
    await this.begin(options.types);
  }

  /** Kills the service: nothing that it was doing continues. */
  async kill(): Promise<void> {
    this.#alive.yes = false;
    this.clock.forgetTimers();
    this.#stop();
    await settled();
  }

  /** Starts a service with the state that the previous one left. @param types the session types it offers. */
  async begin(types: readonly FakeType[] = [this.shell, this.notebook]): Promise<void> {
    const { clock, engine } = this.world;
    const alive = { yes: true };
    this.#alive = alive;
    const store = mortal(this.world.store, alive);
    const { manager, monitor, state, log } = await newManager(
      { maxSandboxes: this.#maxSandboxes },
      {
        engine,
        clock,
        store,
      },
      HOST_MOUNTS,
      { ready() {}, ending: (sandbox) => this.sessions.sandboxEnds(sandbox) },
    );
    this.#stop = () => monitor.stop();
    this.log = log;
    this.sandboxes = manager;
    this.quotas = new TenantQuotas(clock, () => this.quota);
    const catalog = new ToolCatalog(types);
    this.sessions = new SessionManager(
      { sessionTtlMs: TTL_MS, deleteGraceMs: GRACE_MS },
      {
        catalog,
        sandboxes: manager,
        quotas: this.quotas,
        control: { isEnding: async () => this.isEnding },
        store: store.sessions,
        writeBehind: state.writeBehind,
        time: state.time,
        clock,
        logger: log,
      },
    );
    const { sessions, quotas } = this;
    this.tools = new ToolRunner({ catalog, sessions, quotas, clock, logger: log });
    await manager.recover();
    for (const { name: resourceType, sandbox: spec, prestart: prepare } of types)
      if (prepare !== undefined) manager.keepPrepared({ resourceType, count: 1, spec, prepare });
    manager.start();
    state.start();
    await this.sessions.recover();
    await settled();
  }

  /** Requests sessions of these types. */
  create(
    types: readonly string[],
    more: Partial<RequestedSession> = {},
    signal = never,
    worker = WORKER,
  ): Promise<SessionResult[]> {
    const asked = types.map((resourceType) => ({
      resourceType,
      config: undefined,
      customName: "",
      sandbox: undefined,
      workspaceId: "",
      ttlMs: undefined,
      secrets: undefined,
      ...more,
    }));
    return this.sessions.create(OWNER, worker, asked, signal);
  }

  /** Creates a session that does not exist yet. */
  async created(type: string, more: Partial<RequestedSession> = {}): Promise<SessionView> {
    const [result] = await this.create([type], more);
    if (result?.status === "CREATED") return result.session;
    throw new Error(`not created: ${JSON.stringify(result)}`, {
      cause: result?.status === "FAILED" ? result.failure : undefined,
    });
  }

  /** Starts a run of `<type>:wait`. */
  async wait(type: string, name: string, more: Partial<ToolRequest> = {}, signal = never): Promise<Pending> {
    return this.call({ tool: `${type}:wait`, params: { name }, ...more }, signal);
  }

  /** Starts a call of a tool. Returns when nothing more happens by itself. */
  async call(more: Pick<ToolRequest, "tool"> & Partial<ToolRequest>, signal = never): Promise<Pending> {
    const report = this.tools.run(requestOf(more), NO_OBSERVER, signal);
    report.catch(() => {});
    await settled();
    return { report };
  }

  /** The result of `answer` on a session of this type. */
  async answer(type: string): Promise<ToolReport["data"]> {
    const { report } = await this.call({ tool: `${type}:answer` });
    return (await report).data;
  }

  get listed(): readonly SessionView[] {
    return this.sessions.list(OWNER, { workerId: WORKER, types: new Set() }).items;
  }

  /** Ids of the sessions in the store. */
  get stored(): string[] {
    return Array.from(this.world.store.sessions.load(), ({ sessionId }) => sessionId);
  }

  /** Ids of the sandboxes that the engine has. */
  get containers(): string[] {
    return [...this.engine.sandboxes.values()].map(({ sandboxId }) => sandboxId).sort();
  }

  /** The engine's ref of a sandbox. */
  refOf(sandboxId: string): string {
    const found = [...this.engine.sandboxes].find(([, sandbox]) => sandbox.sandboxId === sandboxId);
    if (found === undefined) throw new Error(`the engine has no sandbox ${sandboxId}`);
    return found[0];
  }
}

/** A call in progress. Wrapped in an object, because a returned promise would be awaited. */
export interface Pending {
  readonly report: Promise<ToolReport>;
}

/** A request of {@link WORKER}. */
export function requestOf(more: Pick<ToolRequest, "tool"> & Partial<ToolRequest>): ToolRequest {
  return { owner: OWNER, workerId: WORKER, params: {}, timeoutMs: undefined, traceId: undefined, ...more };
}

/** A key of {@link WORKER}. */
export function keyOf(resourceType: string) {
  return { owner: OWNER, workerId: WORKER, resourceType };
}

/** A promise that a test settles, without an unhandled rejection while nobody awaits it. */
export function gate(): PromiseWithResolvers<void> {
  const made = Promise.withResolvers<void>();
  made.promise.catch(() => {});
  return made;
}

/** Whether a promise has settled by now. */
export async function hasSettled(work: Promise<unknown>): Promise<boolean> {
  let over = false;
  const note = (): void => {
    over = true;
  };
  work.then(note, note);
  await settled();
  return over;
}

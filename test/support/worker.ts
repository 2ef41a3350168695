import type { Client, Request } from "./client.ts";
import {
  fromStruct,
  fromValue,
  type SessionAnswers,
  type SessionResult,
  type SessionStreamItems,
  toStruct,
  type WireSession,
  type WireToolMeta,
  type WireToolResponse,
} from "./wire-sessions.ts";

/** The result of a tool, with its data as JSON. */
export interface ToolAnswer<Data = Record<string, unknown>> {
  readonly code: number;
  readonly message: string;
  readonly data: Data;
  readonly attachments: WireToolResponse["attachments"];
  readonly meta: WireToolMeta;
}

/** The data of `bash:run`. */
export interface BashData {
  readonly stdout: string;
  readonly stderr: string;
  readonly exit_code: number;
  readonly cwd: string;
  readonly timed_out: boolean;
  readonly truncated: boolean;
  readonly session_lost: boolean;
  readonly session_restarted: boolean;
}

/** The data of `python:run`. */
export interface PythonData {
  readonly stdout: string;
  readonly stderr: string;
  readonly result: string | null;
  readonly error: { readonly name: string; readonly value: string; readonly traceback: string } | null;
  readonly timed_out: boolean;
  readonly truncated: boolean;
  readonly session_lost: boolean;
  readonly session_restarted: boolean;
}

type Params = Readonly<Record<string, unknown>>;

/** A worker with sessions, using a client with another library than the server's. */
export class Worker {
  readonly id: string;
  readonly #client: Client;

  constructor(client: Client, id: string) {
    this.#client = client;
    this.id = id;
  }

  /** Requests one session. @param more fields of the resource. @param request fields of the request itself. */
  async create(
    type: string,
    config?: Params,
    more: Request = {},
    request: Request = {},
  ): Promise<SessionResult> {
    const resource = { resource_type: type, ...(config && { config: toStruct(config) }), ...more };
    const { results } = await this.#client.call("SessionService/CreateSessions", {
      worker_id: this.id,
      resources: [resource],
      ...request,
    });
    if (results[0] === undefined) throw new Error("there is no result");
    return results[0];
  }

  /** Runs a tool. */
  async execute<Data = Record<string, unknown>>(
    tool: string,
    params: Params = {},
    more: Request = {},
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<ToolAnswer<Data>> {
    const request = { worker_id: this.id, tool, params: toStruct(params), ...more };
    return toolAnswer(await this.#client.call("SessionService/ExecuteTool", request, options));
  }

  /** Runs a command in the worker's bash. */
  async bash(command: string, more: Request & { readonly seconds?: number } = {}): Promise<BashData> {
    const { seconds, ...rest } = more;
    const params = { command, ...(seconds !== undefined && { timeout: seconds }) };
    return (await this.execute<BashData>("bash:run", params, rest)).data;
  }

  /** Runs several tools by full name, each with its single param. Failures are returned as their reason. */
  async batch(calls: readonly (readonly [string, string])[], more: Request = {}): Promise<unknown[]> {
    const { results } = await this.#client.call("SessionService/ExecuteToolBatch", {
      worker_id: this.id,
      calls: calls.map(([tool, text]) => ({
        tool,
        params: toStruct({ [tool.startsWith("python") ? "code" : "command"]: text }),
      })),
      ...more,
    });
    return results.map(({ outcome, response, failure }) => {
      if (outcome === "skipped") return "skipped";
      return response ? toolAnswer(response) : { ...failure?.detail };
    });
  }

  /** Follows a tool to its end. @param onOutput called with all output so far. */
  async follow(
    tool: string,
    params: Params,
    onOutput: (text: string) => Promise<void> = async () => {},
  ): Promise<SessionStreamItems["SessionService/ExecuteToolStream"][]> {
    const request = { worker_id: this.id, tool, params: toStruct(params) };
    const items: SessionStreamItems["SessionService/ExecuteToolStream"][] = [];
    let text = "";
    for await (const item of this.#client.stream("SessionService/ExecuteToolStream", request)) {
      items.push(item);
      text += item.output?.data.toString() ?? "";
      if (item.output) await onOutput(text);
    }
    return items;
  }

  /** Replaces the session of a type. @param more fields of the request. */
  reinitialize(
    type: string,
    config?: Params,
    more: Request = {},
  ): Promise<SessionAnswers["SessionService/ReinitializeSession"]> {
    return this.#client.call("SessionService/ReinitializeSession", {
      worker_id: this.id,
      resource_type: type,
      ...(config && { config: toStruct(config) }),
      ...more,
    });
  }

  /** The available tools, with the schemas of their params. */
  async tools() {
    const answer = await this.#client.call("SessionService/ListTools", {});
    const tools = answer.tools.map(({ name, params_schema }) => ({
      name,
      schema: fromStruct(params_schema),
    }));
    return { ...answer, tools };
  }

  async list(): Promise<readonly WireSession[]> {
    const answer = await this.#client.call("SessionService/ListSessions", { worker_id: this.id });
    return answer.sessions;
  }

  async destroy(...types: string[]): Promise<readonly SessionResult[]> {
    const request = { worker_id: this.id, resource_types: types };
    return (await this.#client.call("SessionService/DestroySessions", request)).results;
  }
}

/** Converts a response, with its data as JSON. */
export function toolAnswer<Data>(response: WireToolResponse): ToolAnswer<Data> {
  return { ...response, data: fromValue(response.data) as Data };
}

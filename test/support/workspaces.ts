import { createHash } from "node:crypto";
import path from "node:path";
import type { Client, Request } from "./client.ts";
import type {
  Ensured,
  Workspace,
  WorkspaceAnswers,
  WorkspaceChange,
  WorkspaceDiffSummary,
} from "./wire-workspaces.ts";

/** Short forms for calls of WorkspaceService. */
export class WorkspaceClient {
  readonly #client: () => Client;

  constructor(client: () => Client) {
    this.#client = client;
  }

  async create(id: string): Promise<Workspace> {
    return (await this.#client().call("WorkspaceService/CreateWorkspace", { workspace_id: id })).workspace;
  }

  async get(id: string, more: Request = {}): Promise<Workspace> {
    const request = { workspace_id: id, ...more };
    return (await this.#client().call("WorkspaceService/GetWorkspace", request)).workspace;
  }

  ensure(id: string, spec: Request = {}): Promise<Ensured> {
    return this.#client().call("WorkspaceService/EnsureWorkspaceSandbox", { workspace_id: id, spec });
  }

  /** Ensures that it has a sandbox, and returns its id. */
  async sandbox(id: string, spec: Request = {}): Promise<string> {
    const { sandbox, sandbox_unavailable_reason: reason } = await this.ensure(id, spec);
    if (sandbox === null) throw new Error(`there is no sandbox: ${reason}`);
    return sandbox.sandbox_id;
  }

  async stop(id: string): Promise<Workspace> {
    const request = { workspace_id: id, grace: {} };
    return (await this.#client().call("WorkspaceService/StopWorkspaceSandbox", request)).workspace;
  }

  async addRef(id: string, trace: string): Promise<Workspace> {
    const request = { workspace_id: id, trace_id: trace };
    return (await this.#client().call("WorkspaceService/AddTraceRef", request)).workspace;
  }

  async removeRef(id: string, trace: string): Promise<Workspace> {
    const request = { workspace_id: id, trace_id: trace };
    return (await this.#client().call("WorkspaceService/RemoveTraceRef", request)).workspace;
  }

  async lookup(trace: string): Promise<Workspace> {
    return (await this.#client().call("WorkspaceService/LookupTrace", { trace_id: trace })).workspace;
  }

  cleanup(id: string, more: Request = {}): Promise<WorkspaceAnswers["WorkspaceService/CleanupWorkspace"]> {
    return this.#client().call("WorkspaceService/CleanupWorkspace", { workspace_id: id, grace: {}, ...more });
  }

  list(more: Request = {}): Promise<WorkspaceAnswers["WorkspaceService/ListWorkspaces"]> {
    return this.#client().call("WorkspaceService/ListWorkspaces", { page_size: 1000, ...more });
  }

  /** Creates a workspace `id` with the content of `source`. */
  async fork(source: string, id: string, more: Request = {}): Promise<Workspace> {
    const request = { source_workspace_id: source, workspace_id: id, ...more };
    return (await this.#client().call("WorkspaceService/ForkWorkspace", request)).workspace;
  }

  /** How `id` differs from `base`: the changes in order, and their number. */
  async diff(
    base: string,
    id: string,
  ): Promise<{ readonly changes: WorkspaceChange[]; readonly summary: WorkspaceDiffSummary }> {
    const request = { base_workspace_id: base, workspace_id: id };
    const changes: WorkspaceChange[] = [];
    let summary: WorkspaceDiffSummary | undefined;
    for await (const part of this.#client().stream("WorkspaceService/DiffWorkspace", request)) {
      if (summary !== undefined) throw new Error("something follows the summary");
      changes.push(...(part.changes?.changes ?? []));
      summary = part.summary ?? undefined;
    }
    if (summary === undefined) throw new Error("there is no summary");
    return { changes, summary };
  }

  /** The whole export. */
  async export(id: string): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for await (const { chunk } of this.#client().stream("WorkspaceService/ExportWorkspace", {
      workspace_id: id,
    })) {
      chunks.push((chunk as Buffer) ?? Buffer.alloc(0));
    }
    return Buffer.concat(chunks);
  }

  import(id: string, tar: Buffer, more: Request = {}) {
    const messages: Request[] = [{ header: { workspace_id: id, ...more } }];
    for (let at = 0; at < tar.length; at += 1024 * 1024) {
      messages.push({ chunk: tar.subarray(at, at + 1024 * 1024) });
    }
    return this.#client().upload("WorkspaceService/ImportWorkspace", messages);
  }
}

/** The directory of a workspace of the default owner. */
export function directoryOf(root: string, id: string): string {
  return path.join(root, createHash("sha256").update(id).digest("hex"));
}

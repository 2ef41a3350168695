import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { z } from "zod";
import {
  type AddTraceRefRequest,
  type AddTraceRefResponseSchema,
  type CleanupWorkspaceRequest,
  type CleanupWorkspaceResponseSchema,
  type CreateWorkspaceRequest,
  type CreateWorkspaceResponseSchema,
  type DiffWorkspaceRequest,
  type DiffWorkspaceResponseSchema,
  type EnsureWorkspaceSandboxRequest,
  type EnsureWorkspaceSandboxResponseSchema,
  type ExportWorkspaceRequest,
  type ExportWorkspaceResponseSchema,
  type ForkWorkspaceRequest,
  type GetWorkspaceRequest,
  type ImportWorkspaceHeader,
  ImportWorkspaceHeaderSchema,
  type ImportWorkspaceRequest,
  type ImportWorkspaceResponseSchema,
  type ListWorkspacesRequest,
  type ListWorkspacesResponseSchema,
  type LookupTraceRequest,
  type RemoveTraceRefRequest,
  type StopWorkspaceSandboxRequest,
  type Workspace,
  type WorkspaceService,
} from "../../gen/ts/berth/v1/workspace_pb.js";
import { ownerOf } from "../server/call.ts";
import type { RequestLog } from "../state/request-log.ts";
import type { WorkspaceDiff } from "../workspaces/diff.ts";
import type { WorkspaceEnsurer } from "../workspaces/ensure.ts";
import type { WorkspaceFork } from "../workspaces/fork.ts";
import type { WorkspaceManager } from "../workspaces/manager.ts";
import type { WorkspaceName, WorkspaceView } from "../workspaces/workspace.ts";
import { fromWireSpec, toWireSandbox } from "./convert/sandbox.ts";
import { toWireBroken, toWireDiffItem, toWireWorkspace } from "./convert/workspace.ts";
import { beginUpload, withKeepalive } from "./stream.ts";
import { callerId, durationToMs, requestKey } from "./validate/fields.ts";
import { decodePageToken, encodePageToken, pageSize } from "./validate/page.ts";

export interface WorkspaceHandlerParts {
  readonly workspaces: WorkspaceManager;
  readonly forks: WorkspaceFork;
  readonly diffs: WorkspaceDiff;
  readonly ensurer: WorkspaceEnsurer;
  readonly requests: RequestLog;
  readonly keepaliveMs: number;
}

/** The handlers of `berth.v1.WorkspaceService`. They validate, convert and delegate. */
export class WorkspaceHandler implements ServiceImpl<typeof WorkspaceService> {
  readonly #parts: WorkspaceHandlerParts;

  constructor(parts: WorkspaceHandlerParts) {
    this.#parts = parts;
  }

  async createWorkspace(
    request: CreateWorkspaceRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof CreateWorkspaceResponseSchema>> {
    const name = workspaceName(context, request);
    const key = requestKey(context, request);
    const answer = await this.#parts.requests.run(key, context.signal, () =>
      this.#parts.workspaces.create(name),
    );
    return { workspace: this.#toWire(answer.workspace), created: answer.created };
  }

  async getWorkspace(
    request: GetWorkspaceRequest,
    context: HandlerContext,
  ): Promise<{ workspace: Workspace }> {
    const options = { measure: request.measureSize, signal: context.signal };
    return {
      workspace: this.#toWire(await this.#parts.workspaces.get(workspaceName(context, request), options)),
    };
  }

  async listWorkspaces(
    request: ListWorkspacesRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ListWorkspacesResponseSchema>> {
    const after = decodePageToken(request.pageToken, z.string()) ?? "";
    const page = await this.#parts.workspaces.list(ownerOf(context), after, pageSize(request.pageSize));
    return {
      workspaces: page.workspaces.map((view) => this.#toWire(view)),
      broken: page.broken.map(toWireBroken),
      nextPageToken: page.next === undefined ? "" : encodePageToken(page.next),
    };
  }

  async ensureWorkspaceSandbox(
    request: EnsureWorkspaceSandboxRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof EnsureWorkspaceSandboxResponseSchema>> {
    const name = workspaceName(context, request);
    const spec = fromWireSpec(request.spec);
    const key = requestKey(context, request);
    const ensured = await this.#parts.requests.run(key, context.signal, (signal) =>
      this.#parts.ensurer.ensure(name, spec, signal),
    );
    return {
      workspace: this.#toWire(ensured.workspace),
      sandbox: ensured.sandbox && toWireSandbox(ensured.sandbox),
      sandboxUnavailableReason: ensured.unavailableReason,
      reused: ensured.reused,
    };
  }

  async stopWorkspaceSandbox(
    request: StopWorkspaceSandboxRequest,
    context: HandlerContext,
  ): Promise<{ workspace: Workspace }> {
    const name = workspaceName(context, request);
    const graceMs = durationToMs("grace", request.grace);
    const key = requestKey(context, request);
    const view = await this.#parts.requests.run(key, context.signal, (_signal, progress) =>
      this.#parts.ensurer.stop(name, graceMs, progress),
    );
    return { workspace: this.#toWire(view) };
  }

  async addTraceRef(
    request: AddTraceRefRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof AddTraceRefResponseSchema>> {
    const name = workspaceName(context, request);
    const traceId = callerId("trace_id", request.traceId);
    const key = requestKey(context, request);
    const added = await this.#parts.requests.run(key, context.signal, (_signal, progress) =>
      this.#parts.workspaces.addReference(name, traceId, progress),
    );
    return { workspace: this.#toWire(added.workspace), previousWorkspaceId: added.previousWorkspaceId };
  }

  async removeTraceRef(
    request: RemoveTraceRefRequest,
    context: HandlerContext,
  ): Promise<{ workspace: Workspace }> {
    const name = workspaceName(context, request);
    const traceId = callerId("trace_id", request.traceId);
    const key = requestKey(context, request);
    const view = await this.#parts.requests.run(key, context.signal, (_signal, progress) =>
      this.#parts.workspaces.removeReference(name, traceId, progress),
    );
    return { workspace: this.#toWire(view) };
  }

  lookupTrace(request: LookupTraceRequest, context: HandlerContext): { workspace: Workspace } {
    const traceId = callerId("trace_id", request.traceId);
    return { workspace: this.#toWire(this.#parts.workspaces.lookupTrace(ownerOf(context), traceId)) };
  }

  async cleanupWorkspace(
    request: CleanupWorkspaceRequest,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof CleanupWorkspaceResponseSchema>> {
    const name = workspaceName(context, request);
    const { force, requestId } = request;
    const options = { force, requestId, graceMs: durationToMs("grace", request.grace) };
    const key = requestKey(context, request);
    const { workspace, clearedRefs } = await this.#parts.requests.run(key, context.signal, () =>
      this.#parts.workspaces.cleanup(name, options),
    );
    return {
      workspace: workspace && this.#toWire(workspace),
      clearedRefCount: clearedRefs,
      deleted: workspace === undefined,
    };
  }

  async forkWorkspace(
    request: ForkWorkspaceRequest,
    context: HandlerContext,
  ): Promise<{ workspace: Workspace }> {
    const target = workspaceName(context, request);
    const workspaceId = callerId("source_workspace_id", request.sourceWorkspaceId);
    const key = requestKey(context, request);
    const view = await this.#parts.requests.run(key, context.signal, (signal, progress) =>
      this.#parts.forks.fork({ ...target, workspaceId }, target, { signal, progress }),
    );
    return { workspace: this.#toWire(view) };
  }

  async *diffWorkspace(
    request: DiffWorkspaceRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof DiffWorkspaceResponseSchema>> {
    const name = workspaceName(context, request);
    const base = { ...name, workspaceId: callerId("base_workspace_id", request.baseWorkspaceId) };
    const items = this.#parts.diffs.diff(base, name, context.signal);
    for await (const item of withKeepalive(items, this.#parts.keepaliveMs)) yield toWireDiffItem(item);
  }

  async *exportWorkspace(
    request: ExportWorkspaceRequest,
    context: HandlerContext,
  ): AsyncGenerator<MessageInitShape<typeof ExportWorkspaceResponseSchema>> {
    const chunks = this.#parts.workspaces.export(workspaceName(context, request), context.signal);
    for await (const chunk of chunks) yield { chunk };
  }

  async importWorkspace(
    messages: AsyncIterable<ImportWorkspaceRequest>,
    context: HandlerContext,
  ): Promise<MessageInitShape<typeof ImportWorkspaceResponseSchema>> {
    const { header, chunks } = await beginUpload<ImportWorkspaceHeader>(messages);
    const name = workspaceName(context, header);
    const key = requestKey(context, header, ImportWorkspaceHeaderSchema);
    const imported = await this.#parts.requests.run(
      key,
      context.signal,
      (signal) => this.#parts.workspaces.import(name, chunks, { replace: header.replace, signal }),
      { needs: "input" },
    );
    return {
      workspace: this.#toWire(imported.workspace),
      entryCount: BigInt(imported.entryCount),
      sizeBytes: BigInt(imported.sizeBytes),
    };
  }

  #toWire(view: WorkspaceView): Workspace {
    return toWireWorkspace(view, this.#parts.workspaces.references(view));
  }
}

function workspaceName(
  context: HandlerContext,
  { workspaceId }: { readonly workspaceId: string },
): WorkspaceName {
  return { owner: ownerOf(context), workspaceId: callerId("workspace_id", workspaceId) };
}

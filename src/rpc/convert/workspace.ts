import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { SharedDirectoryUsageSchema } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import {
  type BrokenWorkspaceSchema,
  ExportWorkspaceResponseSchema,
  QuotaEnforcement as WireEnforcement,
  type Workspace as WireWorkspace,
  WorkspaceSchema,
} from "../../../gen/ts/berth/v1/workspace_pb.js";
import { withEncoding } from "../../server/framing.ts";
import type { QuotaUsage } from "../../workspaces/quota.ts";
import {
  type BrokenWorkspace,
  isOverQuota,
  type QuotaEnforcement,
  type WorkspaceView,
} from "../../workspaces/workspace.ts";
import { msToTimestamp } from "../validate/fields.ts";
import { encodeChunk } from "./file.ts";

const ENFORCEMENTS: Record<QuotaEnforcement, WireEnforcement> = {
  NONE: WireEnforcement.NONE,
  ENFORCED: WireEnforcement.ENFORCED,
  WATCHED: WireEnforcement.WATCHED,
};

export function toWireWorkspace(view: WorkspaceView): WireWorkspace {
  return create(WorkspaceSchema, {
    workspaceId: view.workspaceId,
    path: view.path,
    traceRefs: [...view.traceRefs],
    refCount: view.traceRefs.length,
    sandboxId: view.sandboxId,
    sizeBytes: view.sizeBytes === undefined ? undefined : BigInt(view.sizeBytes),
    createTime: msToTimestamp(view.createTimeMs),
    updateTime: msToTimestamp(view.updateTimeMs),
    owner: view.owner,
    quotaBytes: BigInt(view.quotaBytes ?? 0),
    quotaEnforcement: ENFORCEMENTS[view.quotaEnforcement],
    overQuota: isOverQuota(view),
    hasShared: view.hasShared,
  });
}

export function toWireBroken(broken: BrokenWorkspace): MessageInitShape<typeof BrokenWorkspaceSchema> {
  return { ...broken };
}

/** One part of an export. Its bytes are sent as they are: see {@link encodeChunk}. */
export function toWireExportChunk(data: Buffer): MessageInitShape<typeof ExportWorkspaceResponseSchema> {
  const message = { chunk: data as Uint8Array<ArrayBuffer> };
  return withEncoding(message, encodeChunk(ExportWorkspaceResponseSchema.field.chunk.number, data));
}

export function toWireSharedUsage(usage: QuotaUsage): MessageInitShape<typeof SharedDirectoryUsageSchema> {
  return {
    sizeBytes: BigInt(usage.sizeBytes ?? 0),
    quotaBytes: BigInt(usage.quotaBytes),
    enforced: usage.quotaEnforcement === "ENFORCED",
    overQuota: isOverQuota(usage),
  };
}

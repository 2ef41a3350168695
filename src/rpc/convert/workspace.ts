import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { SharedDirectoryUsageSchema } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import {
  type BrokenWorkspaceSchema,
  type DiffWorkspaceResponseSchema,
  WorkspaceChangeType as WireChangeType,
  WorkspaceDifference as WireDifference,
  QuotaEnforcement as WireEnforcement,
  type Workspace as WireWorkspace,
  type WorkspaceChangeSchema,
  WorkspaceSchema,
} from "../../../gen/ts/berth/v1/workspace_pb.js";
import { toBytes, toText } from "../../base/byte-string.ts";
import type { TreeChange, TreeDifference } from "../../workspaces/compare.ts";
import type { DiffItem } from "../../workspaces/diff.ts";
import type { QuotaUsage } from "../../workspaces/quota.ts";
import {
  type BrokenWorkspace,
  isOverQuota,
  type QuotaEnforcement,
  type WorkspaceView,
} from "../../workspaces/workspace.ts";
import { msToTimestamp } from "../validate/fields.ts";
import { toWireFile } from "./file.ts";

const ENFORCEMENTS: Record<QuotaEnforcement, WireEnforcement> = {
  NONE: WireEnforcement.NONE,
  ENFORCED: WireEnforcement.ENFORCED,
  WATCHED: WireEnforcement.WATCHED,
};

const CHANGE_TYPES: Record<TreeChange["type"], WireChangeType> = {
  ADDED: WireChangeType.ADDED,
  REMOVED: WireChangeType.REMOVED,
  MODIFIED: WireChangeType.MODIFIED,
};

const DIFFERENCES: Record<TreeDifference, WireDifference> = {
  KIND: WireDifference.KIND,
  CONTENT: WireDifference.CONTENT,
  MODE: WireDifference.MODE,
  OWNER: WireDifference.OWNER,
  LINK_TARGET: WireDifference.LINK_TARGET,
  DEVICE: WireDifference.DEVICE,
};

/** The view may come from an answer that an older version stored, when every workspace had a shared directory. */
export function toWireWorkspace(
  view: Omit<WorkspaceView, "hasShared"> & Partial<WorkspaceView>,
  traceRefs: string[],
): WireWorkspace {
  return create(WorkspaceSchema, {
    workspaceId: view.workspaceId,
    path: view.path,
    traceRefs,
    refCount: traceRefs.length,
    sandboxId: view.sandboxId,
    sizeBytes: view.sizeBytes === undefined ? undefined : BigInt(view.sizeBytes),
    createTime: msToTimestamp(view.createTimeMs),
    updateTime: msToTimestamp(view.updateTimeMs),
    owner: view.owner,
    quotaBytes: BigInt(view.quotaBytes ?? 0),
    quotaEnforcement: ENFORCEMENTS[view.quotaEnforcement],
    overQuota: isOverQuota(view),
    hasShared: view.hasShared ?? true,
  });
}

export function toWireBroken(broken: BrokenWorkspace): MessageInitShape<typeof BrokenWorkspaceSchema> {
  return { ...broken };
}

/** One message of a comparison. Undefined: nothing came for a while. */
export function toWireDiffItem(
  item: DiffItem | undefined,
): MessageInitShape<typeof DiffWorkspaceResponseSchema> {
  if (item === undefined) return { item: { case: "keepalive", value: {} } };
  if (item.type === "changes") {
    return { item: { case: "changes", value: { changes: item.changes.map(toWireChange) } } };
  }
  const { added, removed, modified } = item.summary;
  const value = {
    addedCount: BigInt(added.count),
    removedCount: BigInt(removed.count),
    modifiedCount: BigInt(modified.count),
    addedBytes: BigInt(added.bytes),
    removedBytes: BigInt(removed.bytes),
    modifiedBytes: BigInt(modified.bytes),
  };
  return { item: { case: "summary", value } };
}

function toWireChange(change: TreeChange): MessageInitShape<typeof WorkspaceChangeSchema> {
  return {
    type: CHANGE_TYPES[change.type],
    path: toText(change.path),
    rawPath: toBytes(change.path),
    differences: change.type === "MODIFIED" ? change.differences.map((each) => DIFFERENCES[each]) : [],
    baseFile: change.type === "ADDED" ? undefined : toWireFile(change.baseFile),
    file: change.type === "REMOVED" ? undefined : toWireFile(change.file),
  };
}

export function toWireSharedUsage(usage: QuotaUsage): MessageInitShape<typeof SharedDirectoryUsageSchema> {
  return {
    sizeBytes: BigInt(usage.sizeBytes ?? 0),
    quotaBytes: BigInt(usage.quotaBytes),
    enforced: usage.quotaEnforcement === "ENFORCED",
    overQuota: isOverQuota(usage),
  };
}

import type { ByteString } from "../base/byte-string.ts";
import { comparePaths, type Piece, type TreeEntries, type TreeEntry, type TreeFile } from "./tree-entries.ts";

/** How an entry that both trees have differs. */
export type TreeDifference = "KIND" | "CONTENT" | "MODE" | "OWNER" | "LINK_TARGET" | "DEVICE";

/** An entry that differs. */
export type TreeChange = {
  /** Relative to the root of the trees. */
  readonly path: ByteString;
} & (
  | { readonly type: "ADDED"; readonly file: TreeFile }
  | { readonly type: "REMOVED"; readonly baseFile: TreeFile }
  | {
      readonly type: "MODIFIED";
      readonly baseFile: TreeFile;
      readonly file: TreeFile;
      readonly differences: readonly TreeDifference[];
    }
);

/**
 * Compares two trees. Reads each once, without holding it in memory, and yields the differences in the order of {@link
 * comparePaths}.
 */
export async function* compareTrees(base: TreeEntries, tree: TreeEntries): AsyncGenerator<TreeChange> {
  let [left, right] = [await base.next(), await tree.next()];
  while (left !== undefined || right !== undefined) {
    const order = orderOf(left, right);
    if (order < 0 && left !== undefined) {
      yield { type: "REMOVED", path: left.path, baseFile: left.file };
      left = await base.next();
    } else if (order > 0 && right !== undefined) {
      yield { type: "ADDED", path: right.path, file: right.file };
      right = await tree.next();
    } else if (left !== undefined && right !== undefined) {
      const differences = await differencesOf(left, right, () => sameContent(base, tree));
      const { path, file } = right;
      if (differences.length > 0) yield { type: "MODIFIED", path, baseFile: left.file, file, differences };
      [left, right] = [await base.next(), await tree.next()];
    }
  }
}

function orderOf(left: TreeEntry | undefined, right: TreeEntry | undefined): number {
  if (left === undefined) return 1;
  return right === undefined ? -1 : comparePaths(left.path, right.path);
}

async function differencesOf(
  { file: left, device: leftDevice }: TreeEntry,
  { file: right, device: rightDevice }: TreeEntry,
  isSameContent: () => Promise<boolean>,
): Promise<TreeDifference[]> {
  if (left.kind !== right.kind) return ["KIND"];
  const differences: TreeDifference[] = [];
  if (left.kind === "REGULAR" && (left.sizeBytes !== right.sizeBytes || !(await isSameContent())))
    differences.push("CONTENT");
  if (left.mode !== right.mode) differences.push("MODE");
  if (left.uid !== right.uid || left.gid !== right.gid) differences.push("OWNER");
  if (left.linkTarget !== right.linkTarget) differences.push("LINK_TARGET");
  if (leftDevice !== rightDevice) differences.push("DEVICE");
  return differences;
}

/** Whether two files of the same size have the same bytes, whichever of them are holes. */
async function sameContent(base: TreeEntries, tree: TreeEntries): Promise<boolean> {
  let [left, right] = [await base.piece(), await tree.piece()];
  while (left !== undefined || right !== undefined) {
    // If only one has data here, the other has a hole.
    if (left !== undefined && (right === undefined || left.offset < right.offset)) {
      const length = aloneOf(left, right);
      if (!isZero(left.data.subarray(0, length))) return false;
      left = restOf(left, length) ?? (await base.piece());
    } else if (right !== undefined && (left === undefined || right.offset < left.offset)) {
      const length = aloneOf(right, left);
      if (!isZero(right.data.subarray(0, length))) return false;
      right = restOf(right, length) ?? (await tree.piece());
    } else if (left !== undefined && right !== undefined) {
      const length = Math.min(left.data.length, right.data.length);
      if (left.data.compare(right.data, 0, length, 0, length) !== 0) return false;
      left = restOf(left, length) ?? (await base.piece());
      right = restOf(right, length) ?? (await tree.piece());
    }
  }
  return true;
}

/** How much of a piece lies before the other one, which starts later. */
function aloneOf({ offset, data }: Piece, other: Piece | undefined): number {
  return other === undefined ? data.length : Math.min(data.length, other.offset - offset);
}

function restOf({ offset, data }: Piece, length: number): Piece | undefined {
  return length < data.length ? { offset: offset + length, data: data.subarray(length) } : undefined;
}

const ZEROS = Buffer.alloc(64 * 1024);

function isZero(data: Buffer): boolean {
  for (let at = 0; at < data.length; at += ZEROS.length) {
    const part = data.subarray(at, at + ZEROS.length);
    if (!part.equals(ZEROS.subarray(0, part.length))) return false;
  }
  return true;
}

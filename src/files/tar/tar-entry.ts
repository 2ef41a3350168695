import type { ByteString } from "../../base/byte-string.ts";

/** What an entry of a tar is. `other` stands for the many kinds that only some tars know. */
export type TarKind =
  | "file"
  | "hard-link"
  | "symlink"
  | "character-device"
  | "block-device"
  | "directory"
  | "fifo"
  | "other";

/** Where the data of a file with holes belongs. */
export interface Segment {
  readonly offset: number;
  readonly length: number;
}

/** A file with holes: an entry of a tar brings its data alone. */
export interface SparseMap {
  /** Size of the file, holes included. */
  readonly realSize: number;
  /** In order, none empty, none touching what is before it. What lies between reads as zeros. */
  readonly segments: readonly Segment[];
}

/** One entry of a tar, without its content. */
export interface TarEntry {
  /** As the tar has it. */
  readonly name: ByteString;
  readonly kind: TarKind;
  /** Target of a link, as the tar has it; else empty. */
  readonly linkName: ByteString;
  /** 0 to 07777 octal. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Whole seconds since 1970. */
  readonly modifyTime: number;
  /** Bytes of content that follow; 0 for what has none. */
  readonly size: number;
  /** Of a file with holes: where the content belongs. */
  readonly sparse?: SparseMap | undefined;
  readonly deviceMajor: number;
  readonly deviceMinor: number;
}

/** An entry of a kind that every tar knows. */
export type PlainTarEntry = TarEntry & { readonly kind: Exclude<TarKind, "other"> };

/** Headers and contents fill whole blocks of this many bytes. */
export const BLOCK_BYTES = 512;

/** How many bytes fill up the last block of so many bytes of content. */
export function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}

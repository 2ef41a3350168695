import { deserialize } from "node:v8";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import type { OutputStream } from "../engine/port.ts";
import type { StoredPlace } from "./spill.ts";
import { type Block, costOf } from "./transcript-reader.ts";

/** A block of output: its place on disk, or its bytes. */
export type StoredBlock = Omit<Block, "content"> & { readonly content: StoredPlace | Uint8Array };

/** The blocks of a transcript as they are stored. */
export interface StoredBlocks {
  /** For {@link readBlocks}. Empty for no blocks. */
  readonly bytes: Uint8Array;
  /** How many bytes the blocks take in memory and on disk. */
  readonly heldBytes: number;
  /** The files that they are in. */
  readonly files: readonly string[];
  /** Bytes of output in `bytes` itself. */
  readonly inlineBytes: number;
}

const NOTHING: StoredBlocks = { bytes: new Uint8Array(), heldBytes: 0, files: [], inlineBytes: 0 };

/*
 * The format, in the encodings of Protocol Buffers: a uint32 for its version, then the blocks. A block starts with a
 * uint32 of its length (from bit 2 on), its stream (bit 1, set for stderr), and whether its place follows (bit 0). A
 * block without a place follows the one before: in sequence, in its stream, and in the same file or also in these bytes.
 * So a program that writes to both streams in turn, which makes many tiny blocks, takes one or two bytes for each.
 *
 * A place is the sequence number and the offset (doubles), the number of a file, counted from 1 (uint32), and the
 * position in the file (double). The first block in a file has the file's name as well (string). File 0 means these
 * bytes: the content comes after the block (bytes).
 */
const VERSION = 1;
/** What `serialize` of `node:v8` begins with, which wrote the blocks before version 1. */
const V8_HEADER = 0xff;

/** Where the next block is expected. */
interface Expected {
  sequence: number;
  /** Number of the file; 0: in the stored bytes. */
  file: number;
  position: number;
  readonly stdout: { offset: number };
  readonly stderr: { offset: number };
}

function nothingYet(): Expected {
  return { sequence: 0, file: -1, position: 0, stdout: { offset: 0 }, stderr: { offset: 0 } };
}

function follow(expected: Expected, stream: OutputStream, block: Omit<Block, "stream" | "content">): void {
  expected.sequence = block.sequence + 1;
  expected[stream].offset = block.offset + block.length;
}

/**
 * Prepares the blocks of a transcript for the database.
 * @param inlineBytes how much output in memory is stored with them; blocks beyond that are left out
 */
export function storeBlocks(blocks: Iterable<Readonly<Block>>, inlineBytes: number): StoredBlocks {
  const files = new Map<string, number>();
  const expected = nothingYet();
  let writer: BinaryWriter | undefined;
  let heldBytes = 0;
  let room = inlineBytes;
  for (const block of blocks) {
    const { sequence, stream, offset, length, content } = block;
    const place = Buffer.isBuffer(content) ? undefined : content;
    if (place === undefined && length > room) continue;
    const file = place === undefined ? 0 : (files.get(place.file) ?? files.size + 1);
    const follows =
      sequence === expected.sequence &&
      offset === expected[stream].offset &&
      file === expected.file &&
      (place === undefined || place.position === expected.position);
    writer ??= new BinaryWriter().uint32(VERSION);
    writer.uint32(length * 4 + (stream === "stderr" ? 2 : 0) + (follows ? 0 : 1));
    if (!follows) {
      writer.double(sequence).double(offset).uint32(file);
      if (place !== undefined) {
        writer.double(place.position);
        if (!files.has(place.file)) writer.string(place.file);
      }
    }
    if (place === undefined) {
      writer.bytes((content as Buffer).subarray(0, length));
      room -= length;
    } else if (!follows) files.set(place.file, file);
    follow(expected, stream, block);
    expected.file = file;
    expected.position = (place?.position ?? 0) + length;
    heldBytes += costOf({ length, content: place });
  }
  if (writer === undefined) return NOTHING;
  return { bytes: writer.finish(), heldBytes, files: [...files.keys()], inlineBytes: inlineBytes - room };
}

/** The blocks that {@link storeBlocks}, also of an earlier version, has stored. */
export function readBlocks(bytes: Uint8Array): StoredBlock[] {
  if (bytes.length === 0) return [];
  if (bytes[0] === V8_HEADER) return deserialize(bytes) as StoredBlock[];
  const reader = new BinaryReader(bytes);
  const version = reader.uint32();
  if (version !== VERSION)
    throw new Error(`the output of a process is stored in an unknown format, ${version}`);
  const files: string[] = [];
  const expected = nothingYet();
  const blocks: StoredBlock[] = [];
  while (reader.pos < reader.len) {
    const head = reader.uint32();
    const length = head >>> 2;
    const stream = head & 2 ? "stderr" : "stdout";
    if (head & 1) {
      expected.sequence = reader.double();
      expected[stream].offset = reader.double();
      expected.file = reader.uint32();
      if (expected.file > 0) expected.position = reader.double();
      if (expected.file > files.length) files.push(reader.string());
    }
    const { sequence, position } = expected;
    const { offset } = expected[stream];
    const content = expected.file === 0 ? reader.bytes() : { file: files[expected.file - 1] ?? "", position };
    const block = { sequence, stream, offset, length, content } as const;
    blocks.push(block);
    follow(expected, stream, block);
    expected.position += length;
  }
  return blocks;
}

import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createSecretKey,
  type KeyObject,
  randomBytes,
} from "node:crypto";
import {
  chmodSync,
  closeSync,
  fchmodSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  writeSync,
} from "node:fs";
import path from "node:path";
import { BerthError } from "../base/errors.ts";
import { takeRandom } from "../base/random.ts";

const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Prefix of sealed values. No JSON and no serialized value starts like this. The key's mark follows it. */
export const SEALED_PREFIX = "sealed1:";
const MARK_LENGTH = 8;
/**
 * Length of the start of a sealed text that identifies the key: the prefix, and the base64 characters that depend only
 * on the mark.
 */
export const SEALED_HEAD_LENGTH = SEALED_PREFIX.length + Math.floor((MARK_LENGTH * 8) / 6);
const FILE_MODE = 0o600;

/**
 * Encrypts data from callers in the database, so that a copy of the database alone does not reveal commands, variables
 * or output.
 */
export class Seal {
  /** Created once: with a key as bytes, Node needs four times as long for each cipher. */
  readonly #key: KeyObject;
  /** Identifies the key. */
  readonly #mark: string;
  readonly #head: Buffer;
  readonly #textHead: string;

  private constructor(key: Buffer) {
    this.#key = createSecretKey(key);
    this.#mark = createHash("sha256").update("berth seal ").update(key).digest("hex").slice(0, MARK_LENGTH);
    this.#head = Buffer.from(SEALED_PREFIX + this.#mark);
    this.#textHead = (SEALED_PREFIX + Buffer.from(this.#mark).toString("base64")).slice(
      0,
      SEALED_HEAD_LENGTH,
    );
  }

  /** A seal with a new key, for a database that ends with its process. */
  static random(): Seal {
    return new Seal(randomBytes(KEY_BYTES));
  }

  /**
   * The seal with the key in a file, which is created if it is missing or empty.
   * @throws `INVALID_ARGUMENT` for a file that does not contain a key; errors of the file system
   */
  static ofFile(file: string): Seal {
    const key = readKey(file) ?? makeKey(file);
    if (key.length !== KEY_BYTES) {
      throw refused(
        `${file} holds no key. Restore it from a backup; without it the database cannot be read.`,
      );
    }
    return new Seal(key);
  }

  /** Encrypts a text; the result is text too. */
  text(plain: string): string {
    return SEALED_PREFIX + this.#sealed(Buffer.from(plain)).subarray(SEALED_PREFIX.length).toString("base64");
  }

  /**
   * Decrypts a sealed text; returns the plain text of an earlier version as it is. @throws `INVALID_ARGUMENT` for
   * another key
   */
  openText(stored: unknown): string {
    const text = String(stored);
    if (!text.startsWith(SEALED_PREFIX)) return text;
    return this.#open(Buffer.from(text.slice(SEALED_PREFIX.length), "base64")).toString();
  }

  /**
   * Checks by the first {@link SEALED_HEAD_LENGTH} characters of a text that it was sealed with this key. @throws
   * `INVALID_ARGUMENT` for another key
   */
  checkOwn(head: unknown): void {
    const text = String(head);
    if (text.startsWith(SEALED_PREFIX) && text !== this.#textHead) throw notOurs(new Error("another key"));
  }

  /** Encrypts bytes. Empty bytes stay empty. */
  bytes(plain: Uint8Array): Uint8Array {
    if (plain.length === 0) return plain;
    return this.#sealed(plain);
  }

  #sealed(plain: Uint8Array): Buffer {
    const nonce = takeRandom(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce);
    const content = [cipher.update(plain), cipher.final()];
    return Buffer.concat([this.#head, nonce, cipher.getAuthTag(), ...content]);
  }

  /**
   * Decrypts sealed bytes; returns bytes of an earlier version as they are. @throws `INVALID_ARGUMENT` for another key
   */
  open(stored: Uint8Array): Uint8Array {
    const bytes = Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength);
    if (bytes.toString("latin1", 0, SEALED_PREFIX.length) !== SEALED_PREFIX) return stored;
    return this.#open(bytes.subarray(SEALED_PREFIX.length));
  }

  /** @param bytes without the prefix. */
  #open(bytes: Buffer): Buffer {
    const at = MARK_LENGTH;
    try {
      if (bytes.toString("latin1", 0, at) !== this.#mark) throw new Error("another key");
      const nonce = bytes.subarray(at, at + NONCE_BYTES);
      const tag = bytes.subarray(at + NONCE_BYTES, at + NONCE_BYTES + TAG_BYTES);
      const decipher = createDecipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES });
      decipher.setAuthTag(tag);
      const content = bytes.subarray(at + NONCE_BYTES + TAG_BYTES);
      const plain = decipher.update(content);
      // Returns no bytes, but verifies that the decrypted ones are authentic.
      decipher.final();
      return plain;
    } catch (cause) {
      throw notOurs(cause);
    }
  }
}

function notOurs(cause: unknown): BerthError {
  return refused(
    "the database was written with a key other than the one in the file `key` next to it. Restore both from the same backup.",
    cause,
  );
}

/** Whether a file contains a key, or something in its place. One that a full disk or a crash left empty does not. */
export function hasKey(file: string): boolean {
  return (statSync(file, { throwIfNoEntry: false })?.size ?? 0) > 0;
}

function readKey(file: string): Buffer | undefined {
  try {
    const key = readFileSync(file);
    if (key.length === 0) return undefined;
    chmodSync(file, FILE_MODE);
    return key;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** What a new key is written to, under the same name with this end. */
export const NEW_KEY_END = ".new";

/** Creates a key. It is on disk before anything is sealed with it, and has its name only once it is complete. */
function makeKey(file: string): Buffer {
  const key = randomBytes(KEY_BYTES);
  const incomplete = file + NEW_KEY_END;
  const fd = openSync(incomplete, "w", FILE_MODE);
  try {
    fchmodSync(fd, FILE_MODE);
    writeSync(fd, key);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(incomplete, file);
  const directory = openSync(path.dirname(file), "r");
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
  return key;
}

function refused(problem: string, cause?: unknown): BerthError {
  return new BerthError("INVALID_ARGUMENT", `--data-dir: ${problem}`, {
    cause,
    metadata: { field: "data-dir" },
  });
}

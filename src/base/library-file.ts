import { randomUUID } from "node:crypto";
import { openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

/**
 * A shared library in a file that has no name. Node has no call for what its initializer does, but can load a library:
 * see ADR 110.
 */
export class LibraryFile {
  readonly descriptor: number;

  private constructor(descriptor: number) {
    this.descriptor = descriptor;
  }

  /** Undefined if the file cannot be written. */
  static create(contents: Buffer): LibraryFile | undefined {
    const name = path.join(tmpdir(), `berth-${randomUUID()}.so`);
    try {
      const descriptor = openSync(name, "wx+", 0o600);
      unlinkSync(name);
      writeSync(descriptor, contents);
      return new LibraryFile(descriptor);
    } catch {
      return undefined;
    }
  }

  /** Runs the library's initializer. Does nothing if the C library refuses to load it. */
  run(): void {
    try {
      // Node unloads what is not one of its addons and throws, so that each call loads the library again.
      process.dlopen({ exports: {} }, `/proc/self/fd/${this.descriptor}`);
    } catch {}
  }

  /** Changes the file from this position on, for the next {@link run}. */
  write(bytes: Buffer, position: number): void {
    writeSync(this.descriptor, bytes, 0, bytes.length, position);
  }

  /** Fills a buffer from this position of the file on. */
  read(bytes: Buffer, position: number): void {
    readSync(this.descriptor, bytes, 0, bytes.length, position);
  }
}

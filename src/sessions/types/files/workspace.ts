import { posix } from "node:path";
import { type ByteString, fromText, toText } from "../../../base/byte-string.ts";
import { invalidArgument } from "../../../base/errors.ts";
import type { FileManager, PathRequest } from "../../../files/manager.ts";
import { isWithin } from "../../../files/path.ts";
import type { SessionHost } from "../../backend.ts";

/**
 * The directory that a session's file tools are bounded to: the sandbox's own.
 * A path that leaves it, by name or by a symbolic link, is refused. What runs
 * in the sandbox could change a link in between, and read the file itself as well.
 */
export class Workspace {
  readonly root: string;
  readonly #files: FileManager;
  readonly #host: SessionHost;

  constructor(files: FileManager, host: SessionHost) {
    this.#files = files;
    this.#host = host;
    this.root = host.sandbox.spec.workingDir;
  }

  /**
   * The file that a param names, every link followed.
   * @throws `INVALID_ARGUMENT` where it lies outside.
   */
  async file(param: string, path: string, signal: AbortSignal): Promise<PathRequest> {
    const field = `params.${param}`;
    if (path.includes("\0")) throw invalidArgument(field, "must not hold a NUL byte.");
    if (path === "") throw invalidArgument(field, "is empty.");
    const root = await this.#realPath("root", this.root, signal);
    const named = posix.resolve(this.root, path);
    const real = await this.#realPath(field, named, signal);
    if (!isWithin(real, root)) {
      throw invalidArgument(field, `${JSON.stringify(path)} leaves the session's workspace, ${this.root}.`);
    }
    return this.#request(field, real);
  }

  /** As clients know a path: relative to the root where it lies below. */
  shown({ path }: PathRequest): string {
    return toText(path.bytes);
  }

  #realPath(field: string, path: string, signal: AbortSignal): Promise<ByteString> {
    return this.#files.realPath(this.#request(field, fromText(path)), signal);
  }

  #request(field: string, bytes: ByteString): PathRequest {
    return { sandbox: this.#host.name, user: undefined, path: { field, bytes } };
  }
}

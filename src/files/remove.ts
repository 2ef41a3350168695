import type { ByteString } from "../base/byte-string.ts";
import { invalidArgument } from "../base/errors.ts";
import type { Operation } from "./operation.ts";
import { EXIT, script } from "./script.ts";
import { assign } from "./shell-words.ts";

/** What {@link removeFile} is to do. */
export interface RemoveOptions {
  /** Whether a directory goes with all it holds. */
  readonly recursive: boolean;
  /** Whether a file that is not there is no error. */
  readonly allowMissing: boolean;
}

/**
 * Removes a file, a symbolic link itself, or a directory.
 * @throws `INVALID_ARGUMENT` for the root, `FILE_NOT_FOUND`, `DIRECTORY_NOT_EMPTY` and what any path may end in.
 */
export async function removeFile(
  op: Operation,
  path: ByteString,
  { recursive, allowMissing }: RemoveOptions,
  field: string,
): Promise<void> {
  if (path === "/") throw invalidArgument(field, "the root directory cannot be removed.");
  const directory = recursive
    ? `rm -rf "$p" || { need rm; exit 1; }`
    : `rmdir "$p" || { need rmdir; filled "$p" && exit ${EXIT.notEmpty}; place "$p"; exit 1; }`;
  const missing = allowMissing
    ? `(reach "$p"); s=$?; [ $s = ${EXIT.missing} ] || exit $s`
    : `reach "$p"; exit ${EXIT.missing}`;
  const text = script(
    assign("p", path),
    `if [ -d "$p" ] && [ ! -L "$p" ]; then ${directory}\n`,
    `elif [ -e "$p" ] || [ -L "$p" ]; then rm -f "$p" || { need rm; place "$p"; exit 1; }\n`,
    `else ${missing}\nfi\n`,
  );
  await op.run(text, { path });
}

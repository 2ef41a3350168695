import { stat, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Attachment } from "../../../gen/ts/berth/v1/session_pb.js";
import { makeDirectories } from "../../base/make-directories.ts";
import { Failed } from "../exit.ts";
import { type Io, write } from "../io.ts";

const EXTENSIONS: Readonly<Record<string, string>> = {
  "image/png": ".png",
  "image/jpeg": ".jpg",
  "image/gif": ".gif",
  "image/webp": ".webp",
  "image/svg+xml": ".svg",
  "application/pdf": ".pdf",
  "application/json": ".json",
  "text/html": ".html",
  "text/plain": ".txt",
  "video/mp4": ".mp4",
  "video/webm": ".webm",
};
const MAX_NAME = 64;

/**
 * Writes attachments to the target of `-o`. `-` means stdout, and a name means a file; both take one attachment. A
 * directory, which exists or whose name ends in a slash, takes any number. Returns the paths of the files.
 * @throws Failed if there is no attachment, or several for one place.
 */
export async function saveAttachments(
  io: Io,
  attachments: readonly Attachment[],
  target: string,
  signal?: AbortSignal,
): Promise<string[]> {
  const [first] = attachments;
  if (first === undefined) throw new Failed("the tool returned nothing to write to a file");
  if (target === "-") {
    if (attachments.length > 1) throw several(attachments.length, "stdout");
    if (io.stdout.isTTY)
      throw new Failed("stdout is a terminal; it takes no binary data", { hint: "Name a file: -o FILE" });
    await write(io.stdout, first.content, signal);
    return [];
  }
  if (!(await isDirectory(target))) {
    if (attachments.length > 1) throw several(attachments.length, "a file");
    await save(target, first);
    return [target];
  }
  const files: string[] = [];
  for (const attachment of attachments) {
    const file = path.join(target, fileName(attachment, new Set(files.map((one) => path.basename(one)))));
    await save(file, attachment);
    files.push(file);
  }
  return files;
}

async function save(file: string, { content }: Attachment): Promise<void> {
  try {
    makeDirectories(path.dirname(file));
    await writeFile(file, content);
  } catch (cause) {
    throw new Failed(`${file} cannot be written: ${(cause as Error).message}`, { cause });
  }
}

async function isDirectory(target: string): Promise<boolean> {
  if (target.endsWith("/")) return true;
  const found = await stat(target).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

/** A free name that is nothing but a file name, whatever the sandbox called the attachment. */
function fileName({ name, mediaType }: Attachment, taken: ReadonlySet<string>): string {
  const [type = ""] = mediaType.split(";", 1);
  const extension = EXTENSIONS[type.trim().toLowerCase()] ?? ".bin";
  const safe =
    name
      .replace(/[^A-Za-z0-9._-]/g, "_")
      .replace(/^\.+/, "")
      .slice(0, MAX_NAME) || "attachment";
  const stem = safe.endsWith(extension) ? safe.slice(0, -extension.length) : safe;
  for (let count = 1; ; count++) {
    const candidate = `${stem}${count === 1 ? "" : `-${count}`}${extension}`;
    if (!taken.has(candidate)) return candidate;
  }
}

function several(count: number, where: string): Failed {
  return new Failed(`the tool returned ${count} attachments, which ${where} cannot take`, {
    hint: "Name a directory: -o DIR/",
  });
}

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { MountSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { ValueError } from "../config/values.ts";

/** A mount, as in a request. */
export type MountInit = MessageInitShape<typeof MountSchema>;

/**
 * Parses `SOURCE:TARGET[:ro]`. An absolute source is a directory on the service's machine; any other is the id of a
 * workspace.
 */
export function parseVolume(text: string): MountInit {
  const problem = (why: string) =>
    new ValueError(
      `${JSON.stringify(text)}: ${why}; write WORKSPACE:/TARGET or /DIRECTORY:/TARGET, and :ro after it for read-only`,
    );
  const [source = "", target = "", mode, ...more] = text.split(":");
  if (source === "" || target === "") throw problem("a source and a target are needed");
  if (more.length > 0) throw problem("there are too many colons (see --mount)");
  if (mode !== undefined && mode !== "ro" && mode !== "rw")
    throw problem(`${JSON.stringify(mode)} is neither ro nor rw`);
  if (/^[.~]/.test(source)) throw problem("a directory is named by its absolute path");
  if (!target.startsWith("/")) throw problem("the target is an absolute path in the sandbox");
  return {
    source: source.startsWith("/")
      ? { case: "hostPath", value: source }
      : { case: "workspaceId", value: source },
    target,
    readOnly: mode === "ro",
  };
}

/** The keys of `--mount`, as in Docker. */
const KEYS = new Map([
  ["type", "type"],
  ["source", "source"],
  ["src", "source"],
  ["target", "target"],
  ["destination", "target"],
  ["dst", "target"],
  ["readonly", "readonly"],
  ["ro", "readonly"],
]);

/** Parses `type=workspace|bind,source=…,target=…[,readonly]`. */
export function parseMount(text: string): MountInit {
  const problem = (why: string) =>
    new ValueError(`${JSON.stringify(text)}: ${why}; write type=workspace|bind,source=…,target=…[,readonly]`);
  const said: Record<string, string> = {};
  for (const setting of text.split(",")) {
    const [word, value] = splitOnce(setting);
    const key = KEYS.get(word);
    if (key === undefined) throw problem(`${JSON.stringify(word)} is not a setting`);
    if (said[key] !== undefined) throw problem(`${key} is set twice`);
    if (key === "readonly" ? !/^(true|false)?$/.test(value ?? "") : !value)
      throw problem(`${word} has no such value`);
    said[key] = value ?? "true";
  }
  const { type, source, target, readonly: readOnly } = said;
  if (type !== "workspace" && type !== "bind") throw problem("type is neither workspace nor bind");
  if (source === undefined) throw problem("there is no source");
  if (!target?.startsWith("/")) throw problem("there is no target that is an absolute path");
  if (type === "bind" && !source.startsWith("/"))
    throw problem("the source of a bind is not an absolute path");
  return {
    source: { case: type === "bind" ? "hostPath" : "workspaceId", value: source },
    target,
    readOnly: readOnly === "true",
  };
}

function splitOnce(text: string): [string, string | undefined] {
  const at = text.indexOf("=");
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

import path from "node:path";
import { UsageError } from "../exit.ts";

/** One end of a copy. */
type Place =
  | { readonly kind: "sandbox"; readonly sandboxId: string; readonly path: string }
  | { readonly kind: "local"; readonly path: string }
  /** stdin or stdout. */
  | { readonly kind: "stream" };

/** Both ends of a copy. Exactly one is in a sandbox. */
type Copy =
  | { readonly direction: "up"; readonly from: LocalPlace; readonly to: SandboxPlace }
  | { readonly direction: "down"; readonly from: SandboxPlace; readonly to: LocalPlace };

export type SandboxPlace = Extract<Place, { kind: "sandbox" }>;
export type LocalPlace = Exclude<Place, SandboxPlace>;

/**
 * Parses the arguments of a copy.
 * @param named the id of the sandbox, which the arguments then leave out: `:PATH`
 * @throws UsageError unless exactly one end is in a sandbox
 */
export function parseCopy(source: string, target: string, named?: string): Copy {
  const from = parsePlace(source, named);
  const to = parsePlace(target, named);
  if (from.kind === "sandbox" && to.kind !== "sandbox") return { direction: "down", from, to };
  if (from.kind !== "sandbox" && to.kind === "sandbox") return { direction: "up", from, to };
  const both = from.kind === "sandbox" ? "both sides are in sandboxes" : "neither side is in a sandbox";
  if (named !== undefined) throw new UsageError(`${both}; with --sandbox, write :PATH for one of them`);
  throw new UsageError(
    `${both}; write: berth cp FILE SANDBOX:PATH, or berth cp SANDBOX:PATH FILE (./a:b for a file with a colon)`,
  );
}

/**
 * Parses `-`, `SANDBOX:PATH` or a local path. A slash before any colon makes it local. If the sandbox is named, `:PATH`
 * is in it, and everything else is local.
 */
function parsePlace(text: string, named: string | undefined): Place {
  if (text === "") throw new UsageError("a path is empty; write: berth cp FILE SANDBOX:PATH");
  if (text === "-") return { kind: "stream" };
  const [, found, inside] = (named === undefined ? /^([^:/]+):(.*)$/s : /^(:)(.*)$/s).exec(text) ?? [];
  const sandboxId = found && (named ?? found);
  if (sandboxId === undefined || inside === undefined) return { kind: "local", path: text };
  return { kind: "sandbox", sandboxId, path: inside === "" ? "." : inside };
}

/** The name that a copy gets in a directory. Undefined if the content of the place is meant, as with `dir/.`. */
export function nameOf(place: string): string | undefined {
  const name = path.posix.basename(place);
  return name === "" || name === "." || name === ".." ? undefined : name;
}

/** The path of a name in a directory, or of the directory itself if there is no name. */
export function inside(directory: string, name: string | undefined): string {
  return name === undefined ? directory : `${directory.replace(/\/+$/, "")}/${name}`;
}

import { BerthError, throwIfAborted } from "../../base/errors.ts";
import type { OpenVolume } from "../../engine/port.ts";
import { ArchiveCheck } from "../../files/archive-check.ts";
import { EXIT, script } from "../../files/script.ts";
import { gather } from "../../files/tar/tar-writer.ts";
import type { TemporaryNames } from "../../files/temporary-names.ts";
import { moveInto, rewriteArchive } from "../../files/upload-archive.ts";
import type { StagedImport, StageOptions } from "../storage.ts";
import type { WorkspacePlace } from "../workspace.ts";
import type { Places } from "./places.ts";
import { runOn, VolumeScript, volumeFailure } from "./script.ts";

/** Smaller pieces are combined into chunks of this size. */
const CHUNK_BYTES = 64 * 1024;
/** How long it may take to remove a failed import. A later import removes the rest. */
const CLEAN_UP_MS = 60_000;

interface StageParts {
  readonly place: WorkspacePlace;
  readonly volume: string;
  readonly places: Places;
  readonly names: TemporaryNames;
  /** Name of the directory on the volume for this import. */
  readonly work: string;
  /** The names of all running imports. */
  readonly staging: ReadonlySet<string>;
  /** Size limit for the archive's files. */
  readonly maxBytes: number;
}

/** Checks a tar and unpacks it into a directory at the top of the volume, where no sandbox sees it. */
export async function stageOnVolume(
  parts: StageParts,
  chunks: AsyncIterable<Uint8Array>,
  options: StageOptions,
): Promise<StagedImport> {
  const { signal } = options;
  const { places, volume: name, work } = parts;
  const held = await places.hold(name, signal);
  let rubbish: string | undefined = work;
  const discard = async (): Promise<void> => {
    const directory = rubbish;
    rubbish = undefined;
    if (directory !== undefined) await remove(held.volume, directory);
    held.release();
  };
  try {
    const { entryCount, sizeBytes } = await unpack(parts, held.volume, chunks, options);
    return {
      entryCount,
      sizeBytes,
      merge: async ({ tree }) => {
        // If a sandbox replaces a directory by a link meanwhile, files may end up anywhere in this place.
        held.spend();
        await merge(held.volume, work, `t${tree}`);
        // Frees the volume: one that only a single pod can mount would not be available to the next place.
        await discard();
      },
      replace: async ({ tree }, record) => {
        const next = tree + 1;
        await replace(held.volume, work, { from: `t${tree}`, to: `t${next}` }, signal);
        rubbish = `t${next}`;
        record(next);
        rubbish = `t${tree}`;
      },
      discard,
    };
  } catch (error) {
    held.spend();
    await discard();
    throw error;
  }
}

/** Like on the host: first removes leftovers of earlier imports, and gives the files the workspace's owner. */
async function unpack(
  { place, names, work, staging, maxBytes }: StageParts,
  volume: OpenVolume,
  chunks: AsyncIterable<Uint8Array>,
  { admit, take, signal }: StageOptions,
): Promise<{ readonly entryCount: number; readonly sizeBytes: number }> {
  const marker = names.next();
  const tree = `${volume.path}/t${place.tree}`;
  const text = script(
    `need tar; need find; need chown; need stat; cd ${volume.path} || exit\n`,
    `for f in .berth-*; do case $f in ${[...staging].join("|")}) ;; *) rm -rf "./$f";; esac; done\n`,
    `[ -d ${tree} ] || { mkdir ${tree} && chmod 777 ${tree}; } || exit\n`,
    `mkdir -m 700 ${work} && cd ${work} || exit; t=${marker}\n`,
    `umask 0; tar -xpof - || exit 1; umask 022\n`,
    `[ -f $t ] || exit ${EXIT.incomplete}; fill() { . ./$t; }; fill || exit 1; rm $t\n`,
    `o=$(stat -c %u:%g ${tree}) || exit; [ $o = 0:0 ] || chown -hR $o .\n`,
  );
  const check = new ArchiveCheck(take);
  const running = await VolumeScript.start(volume, text, { stdin: true, signal });
  try {
    for await (const chunk of gather(rewriteArchive(chunks, check, marker), CHUNK_BYTES)) {
      throwIfAborted(signal);
      if (check.sizeBytes > maxBytes) throw tooLarge(maxBytes);
      await admit(check.sizeBytes);
      if (!(await running.write(chunk))) break;
    }
    if (check.sizeBytes > maxBytes) throw tooLarge(maxBytes);
    await admit(check.sizeBytes);
    const end = await running.finish();
    if (end.code !== 0) throw volumeFailure(end, "imported");
    return { entryCount: check.entryCount, sizeBytes: check.sizeBytes };
  } finally {
    running.close();
  }
}

async function merge(volume: OpenVolume, work: string, tree: string): Promise<void> {
  const text = script(
    `need mv; need find; cd ${volume.path} || exit; ${removeTreesBut(tree)}; cd ${work} || exit\n`,
    `give_up() { exit $1; }\n`,
    moveInto(`${volume.path}/${tree}`),
    `clash .; merge . || exit 1\n`,
  );
  // Must not be interrupted halfway.
  const end = await runOn(volume, text, new AbortController().signal);
  if (end.code !== 0) throw volumeFailure(end, "imported");
}

async function replace(
  volume: OpenVolume,
  work: string,
  { from, to }: { readonly from: string; readonly to: string },
  signal: AbortSignal,
): Promise<void> {
  const text = script(
    `need mv; need stat; need sync; cd ${volume.path} || exit; ${removeTreesBut(from)}\n`,
    `chmod "$(stat -c %a ${from})" ${work} || exit\n`,
    // Sync before the store records the new tree as the current one.
    `mv -T ${work} ${to} && sync\n`,
  );
  const end = await runOn(volume, text, signal);
  if (end.code !== 0) throw volumeFailure(end, "imported");
}

/** Removes trees left by a replacement that a crash interrupted. */
function removeTreesBut(tree: string): string {
  return `for f in t[0-9]*; do [ "$f" = ${tree} ] || rm -rf "./$f"; done`;
}

/** Removes a directory at the top of the volume. A later import removes the rest if this fails. */
async function remove(volume: OpenVolume, directory: string): Promise<void> {
  const signal = AbortSignal.timeout(CLEAN_UP_MS);
  await runOn(volume, `cd ${volume.path} && rm -rf ./${directory}`, signal).catch(() => {});
}

function tooLarge(maxBytes: number): BerthError {
  return new BerthError(
    "NO_SPACE",
    `Nothing was imported: the archive's files take more than ${maxBytes} bytes, the size of a workspace's volume.`,
    { metadata: { quota_bytes: String(maxBytes) } },
  );
}

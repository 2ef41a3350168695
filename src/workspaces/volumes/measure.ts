import { TurnShare } from "../../base/turn-share.ts";
import type { OpenVolume } from "../../engine/port.ts";
import { script } from "../../files/script.ts";
import { runOn, VolumeScript, volumeFailure } from "./script.ts";

const KIB = 1024;
/** How many names one measurement removes. The next one finds the rest. */
const MAX_NAMES = 1_000;
const NAMES_AT_ONCE = 100;
/** Linux has no longer names. */
const MAX_NAME_BYTES = 255;

/** The sizes of a workspace and of its volume. */
interface VolumeUse {
  /** Disk space of the workspace, in bytes. */
  readonly sizeBytes: number;
  /** Size of the volume's file system, in bytes. */
  readonly volumeBytes: number;
}

/**
 * First removes temporary files that `isLeftBehind` accepts, then measures a workspace. Sandboxes may write to it
 * meanwhile.
 */
export async function measureVolume(
  volume: OpenVolume,
  tree: string,
  isLeftBehind: (name: string) => boolean,
  signal: AbortSignal,
): Promise<VolumeUse> {
  const directory = `${volume.path}/${tree}`;
  await sweepVolume(volume, directory, isLeftBehind, signal);
  const end = await runOn(
    volume,
    script(
      `need du; need df; df -Pk ${volume.path} | { read -r x; read -r x size x; echo "$size"; }\n`,
      // A volume that no sandbox ever mounted is empty.
      `cd ${directory} 2>/dev/null || { echo 0; exit 0; }\n`,
      // du complains about files that vanish meanwhile, and GNU du may abort if a directory is replaced by a link.
      `for i in 1 2 3 4 5; do du -sk .; [ $? -lt 126 ] && break; done; exit 0\n`,
    ),
    signal,
  );
  const [total = "", used = ""] = end.stdout.split("\n");
  const [sizeKib, volumeKib] = [/^\d+/.exec(used)?.[0], /^\d+$/.exec(total)?.[0]];
  if (end.code !== 0 || sizeKib === undefined || volumeKib === undefined) throw volumeFailure(end, "read");
  return { sizeBytes: Number(sizeKib) * KIB, volumeBytes: Number(volumeKib) * KIB };
}

/** Removes every entry whose name `isLeftBehind` accepts from a directory of a volume. */
export async function sweepVolume(
  volume: OpenVolume,
  directory: string,
  isLeftBehind: (name: string) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const begin = `need find; cd ${directory} 2>/dev/null || exit 0\n`;
  const names = await namesLeftBehind(volume, begin, isLeftBehind, signal);
  for (let at = 0; at < names.length; at += NAMES_AT_ONCE) {
    const either = names.slice(at, at + NAMES_AT_ONCE).map((name) => `-name '${name}'`);
    const remove = `find . '(' ${either.join(" -o ")} ')' -prune -exec rm -rf {} +\n`;
    await runOn(volume, script(begin, remove), signal);
  }
}

/** A workspace may hold any number of such names. So all searches share a part of each turn of the event loop. */
const turns = new TurnShare();

/** At most {@link MAX_NAMES} different names that `isLeftBehind` accepts. */
async function namesLeftBehind(
  volume: OpenVolume,
  begin: string,
  isLeftBehind: (name: string) => boolean,
  signal: AbortSignal,
): Promise<string[]> {
  const names = new Set<string>();
  const text = script(begin, `find . -name '.berth-*' 2>/dev/null\n`);
  const running = await VolumeScript.start(volume, text, { signal });
  try {
    let rest = "";
    for (let chunk = await running.read(); chunk !== undefined; chunk = await running.read()) {
      const lines = (rest + chunk.toString("latin1")).split("\n");
      // A path may be as long as a sandbox makes it. Only its end, the name, matters.
      rest = (lines.pop() ?? "").slice(-MAX_NAME_BYTES - 1);
      for (const line of lines) {
        const turn = turns.enter();
        if (turn) await turn;
        const name = line.slice(line.lastIndexOf("/") + 1);
        if (names.size < MAX_NAMES && isLeftBehind(name)) names.add(name);
      }
    }
    await running.finish();
    return [...names];
  } finally {
    running.close();
  }
}

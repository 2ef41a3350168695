import { spawnSync } from "node:child_process";
import { Readable } from "node:stream";
import { expect } from "vitest";
import { ArchiveCheck } from "../../src/files/archive-check.ts";
import { readTar } from "../../src/files/tar/tar-reader.ts";

/** The content of what stays unchanged while the rest of the tree changes. */
export const CALM = "content\n";

/**
 * Shell lines for any `sh` that create a tree in the working directory, and then create, fill, truncate, append to,
 * rename, replace by another kind and remove entries in it, until a file `stop` appears or many rounds are over.
 */
export const CHANGE_TREE = `mkdir -p tree && cd tree || exit
mkdir calm; printf '${CALM.replace("\n", "\\n")}' >calm/file; ln -s file calm/link
for n in 1 2 3 4 5 6 7 8; do mkdir s$n; head -c 300000 /dev/zero >s$n/file; done
echo ready
change() { i=0; while [ ! -e ../stop ] && [ $i -lt 20000 ]; do i=$((i+1)) k=$1$((i%3)) s=s$((i%8+1))
mkdir -p d$k/sub/deep; echo x >d$k/f; echo y >d$k/sub/g; echo z >d$k/sub/deep/h; ln -s f d$k/l; ln d$k/f d$k/hard
dd if=/dev/zero of=d$k/big bs=256k count=4; mv d$k e$k; : >e$k/big; echo more >>e$k/f
rm e$k/l; echo file >e$k/l; rm -r e$k/sub; echo file >e$k/sub; rm e$k/f; ln -s nowhere e$k/f
: >$s/file; mv $s/file $s/moved; head -c 300000 /dev/zero >$s/moved; mv $s/moved $s/file
mkdir -p q$k/r/r/r; mv q$k e$k/q; mv e$k/q $s/q$k; mv $s/q$k/r/r q$k; rm -r q$k $s/q$k e$k; done; }
{ change a & change b & wait; } 2>/dev/null
`;

/** How many files the directory has that {@link swapTree} swaps: `file-0` and so on, each with "public". */
export const SWAPPED_FILES = 50;

/**
 * Shell lines that create a directory `real`, and swap it for a link to `target` and back, until a file `stop` appears
 * or many rounds are over.
 */
export function swapTree(target: string): string {
  return `mkdir real; for i in $(seq 0 ${SWAPPED_FILES - 1}); do printf public >real/file-$i; done
echo ready; i=0
while [ ! -e stop ] && [ $i -lt 100000 ]; do i=$((i+1)); mv real aside; ln -s ${target} real; rm real; mv aside real; done`;
}

/**
 * Fails unless Berth and the host's tar can unpack an archive of a changing tree, and it has everything that did not
 * change.
 */
export async function expectWhole(archive: Buffer, calm: string): Promise<void> {
  const check = new ArchiveCheck();
  const contents = new Map<string, string>();
  let name = "";
  for await (const item of readTar(Readable.from([archive]))) {
    if (item.type === "entry") {
      check.admit(item.entry);
      ({ name } = item.entry);
      contents.set(name, item.entry.linkName);
    } else if (name.startsWith(calm)) contents.set(name, `${contents.get(name)}${item.data}`);
  }
  expect(contents.get(`${calm}/file`)).toBe(CALM);
  expect(contents.get(`${calm}/link`)).toBe("file");
  const { status, stderr } = spawnSync("tar", ["-tf", "-"], { input: archive, maxBuffer: 64 * 1024 * 1024 });
  expect(stderr.toString()).toBe("");
  expect(status).toBe(0);
}

import { randomBytes } from "node:crypto";
import { describe, expect, onTestFinished, test } from "vitest";
import { CHANGE_TREE, expectWhole } from "../../support/busy-tree.ts";
import { BUSYBOX_IMAGE, TEST_IMAGE } from "../../support/images.ts";
import { type FileBench, refusal, useFileBench } from "./file-bench.ts";

async function archiveOf(bench: FileBench, path: string): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bench.downloadArchive(path)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

describe("a small tar", () => {
  const bench = useFileBench({ image: BUSYBOX_IMAGE });

  test("a tree that changes is still downloaded", async () => {
    const dir = `/workspace/${randomBytes(4).toString("hex")}`;
    const change = bench().sh(`mkdir ${dir}; cd ${dir}; { ${CHANGE_TREE} }`);
    onTestFinished(async () => {
      await bench().sh(`touch ${dir}/stop`);
      await change;
    });
    await bench().sh(`i=0; until [ -e ${dir}/tree/s8/file ] || [ $i = 300 ]; do sleep 0.1; i=$((i+1)); done`);
    const failures: string[] = [];
    for (let time = 0; time < 25; time++) {
      await archiveOf(bench(), `${dir}/tree`)
        .then((archive) => expectWhole(archive, "calm"))
        .catch((error: unknown) => failures.push(String(error)));
    }
    expect(failures).toEqual([]);
  });
});

describe("large holes", () => {
  const debian = useFileBench({ image: TEST_IMAGE });
  const busybox = useFileBench({ image: BUSYBOX_IMAGE });
  const MAKE =
    "mkdir /workspace/holes; cd /workspace/holes; echo x >file; dd if=/dev/zero of=large bs=1 count=0 seek=1099511627776";

  test("are refused if the image's tar would write them, and accepted in uploads", async () => {
    await busybox().sh(MAKE);
    for (const path of ["holes", "holes/large"]) {
      expect(await refusal(archiveOf(busybox(), path))).toMatchObject({
        reason: "UNSUPPORTED",
        message: expect.stringContaining("large holes"),
      });
    }
    await debian().sh(`${MAKE}; printf end >>large; ln large hard`);
    const archive = await archiveOf(debian(), "holes");
    expect(archive.length).toBeLessThan(100_000);
    async function* chunks() {
      yield archive;
    }
    await busybox().uploadArchive("in", chunks(), { createParents: true });
    const told = await busybox().sh(
      "cd /workspace/in; ls -A; stat -c '%s %h' large; du -k large | cut -f1; tail -c 5 hard",
    );
    expect(told.toString()).toMatch(/^file\nhard\nlarge\n1099511627779 2\n\d{1,3}\n\0\0end$/);
  });
});

import { describe, expect, test } from "vitest";
import { IMAGES, refusal, useFileBench } from "./file-bench.ts";

/** Prints what is there: kind, inode and, for a directory, its content. */
const LOOK =
  "cd /workspace; ls -dil it; if [ -d it ]; then ls -A it; cat it/file; else stat -L -c '%F %i' it; fi";

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);

  test.each([
    ["a directory", "mkdir /workspace/it; echo old >/workspace/it/file"],
    ["a FIFO", "mkfifo -m 666 /workspace/it"],
    ["a device", "ln -s /dev/null /workspace/it"],
    ["a terminal's device", "ln -s /dev/ptmx /workspace/it"],
    ["a link to a FIFO", "mkfifo -m 666 /workspace/fifo; ln -s fifo /workspace/it"],
    [
      "a socket",
      "ln -s /tmp/socket /workspace/it; nc -l -U /tmp/socket & python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/tmp/socket\")' || true",
    ],
  ])("instead of a file, %s is refused at once", async (kind, make) => {
    // busybox cannot create a socket.
    if (kind === "a socket" && spec.image?.includes("busybox")) make = "ln -s /dev/zero /workspace/it";
    await bench().sh(`rm -rf /workspace/it /workspace/fifo /tmp/socket; ${make}`);
    const wrong = { reason: "FILE_KIND" };
    const before = await bench().sh(LOOK);
    expect(await refusal(bench().read("it"))).toMatchObject(wrong);
    expect(await refusal(bench().download("it"))).toMatchObject(wrong);
    expect(await refusal(bench().write("it", "x"))).toMatchObject(wrong);
    expect(await refusal(bench().write("it", "x", { append: true }))).toMatchObject(wrong);
    expect(await refusal(bench().write("it", Buffer.alloc(100_000)))).toMatchObject(wrong);
    expect(await refusal(bench().upload("it", neverEnding()))).toMatchObject(wrong);
    expect(await bench().sh(LOOK)).toEqual(before);
    expect((await bench().sh("ls -A /workspace")).toString()).not.toContain(".berth");
  });

  test("a FIFO can be inspected, moved and removed", async () => {
    await bench().sh("rm -rf /workspace/it; mkfifo /workspace/it; chmod 666 /workspace/it");
    expect((await bench().stat("it")).info.kind).toBe("FIFO");
    expect((await bench().move("it", "moved")).kind).toBe("FIFO");
    await bench().remove("moved");
    expect(await refusal(bench().stat("moved"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
  });

  test("a FIFO is not an archive", async () => {
    await bench().sh("rm -rf /workspace/it; mkfifo /workspace/it");
    expect(await refusal(bench().downloadArchive("it"))).toMatchObject({ reason: "FILE_KIND" });
  });
});

/** Endless chunks, so that only a refusal ends the upload. */
async function* neverEnding(): AsyncGenerator<Uint8Array> {
  yield Buffer.from("x");
  await new Promise(() => {});
}

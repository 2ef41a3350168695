import { describe, expect, test } from "vitest";
import { IMAGES, refusal, useFileBench } from "./file-bench.ts";

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);

  test.each([
    [0, 100, "0123456789", true],
    [0, 10, "0123456789", true],
    [0, 9, "012345678", false],
    [3, 4, "3456", false],
    [9, 5, "9", true],
    [10, 5, "", true],
  ])("from %i at most %i bytes: %j", async (offset, limit, wanted, endOfFile) => {
    await bench().write("digits", "0123456789");
    const part = await bench().read("digits", { offset, limit });
    expect(part.data.toString()).toBe(wanted);
    expect(part).toMatchObject({ endOfFile, info: { sizeBytes: 10 } });
  });

  test("an offset beyond the end is refused", async () => {
    await bench().write("digits", "0123456789");
    for (const work of [bench().read("digits", { offset: 11 }), bench().download("digits", { offset: 11 })]) {
      expect(await refusal(work)).toMatchObject({ reason: "OFFSET_OUT_OF_RANGE" });
    }
  });

  test("a far offset of a large file is read at once", async () => {
    await bench().sh(
      "dd if=/dev/null of=/workspace/sparse bs=1 seek=6000000000 2>/dev/null; echo end >>/workspace/sparse",
    );
    const part = await bench().read("sparse", { offset: 5_999_999_999, limit: 100 });
    expect(part.data.toString()).toBe("\0end\n");
    expect(part.info.sizeBytes).toBe(6_000_000_004);
  });

  test("a file without a known size is read whole", async () => {
    const part = await bench().read("/proc/version");
    expect(part.data.toString()).toMatch(/^Linux version .*\n$/);
    expect(part).toMatchObject({ endOfFile: true, info: { sizeBytes: 0 } });
    expect((await bench().read("/proc/version", { limit: 5 })).endOfFile).toBe(false);
  });

  test("links are followed", async () => {
    await bench().sh("cd /workspace; printf there >real; ln -s real link; mkdir d; ln -s .. d/up");
    expect((await bench().read("link")).data.toString()).toBe("there");
    expect((await bench().read("d/up/link")).data.toString()).toBe("there");
  });

  test.each([
    ["missing", "FILE_NOT_FOUND"],
    ["missing/below", "FILE_NOT_FOUND"],
    ["/etc/passwd/x", "FILE_KIND"],
    ["/etc", "FILE_KIND"],
  ])("%s ends in %s", async (path, reason) => {
    expect(await refusal(bench().read(path))).toMatchObject({ reason });
    expect(await refusal(bench().download(path))).toMatchObject({ reason });
  });

  test("a file that the user may not read is refused", async () => {
    await bench().sh(
      "mkdir -m 700 /closed; echo x >/closed/file; echo x >/unreadable; chmod 600 /unreadable",
    );
    for (const path of ["/closed/file", "/unreadable"]) {
      const error = await refusal(bench().read(path, { user: "1000:1000" }));
      expect(error).toMatchObject({ reason: "FILE_PERMISSION" });
    }
  });

  test("a file that the kernel fails to read ends in an error, not in empty data", async () => {
    expect(await refusal(bench().read("/proc/self/mem"))).toMatchObject({
      reason: expect.stringMatching(/UNSUPPORTED|FILE_PERMISSION/),
    });
  });
});

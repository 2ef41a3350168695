import { describe, expect, test } from "vitest";
import { IMAGES, refusal, useFileBench } from "./file-bench.ts";

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);

  test("a file is described as the container sees it", async () => {
    await bench().sh(
      "printf hello >/workspace/a; chown 7:8 /workspace/a; chmod 4750 /workspace/a; touch -d '2020-02-03 04:05:06' /workspace/a",
    );
    expect(await bench().stat("./b/../a")).toMatchObject({
      path: "/workspace/a",
      info: {
        kind: "REGULAR",
        sizeBytes: 5,
        mode: 0o4750,
        uid: 7,
        gid: 8,
        modifyTime: { seconds: Date.UTC(2020, 1, 3, 4, 5, 6) / 1000, nanos: 0 },
        linkTarget: "",
      },
    });
  });

  test("a link is described itself, or its target", async () => {
    await bench().sh("printf hello >/workspace/target; ln -s target /workspace/link");
    expect((await bench().stat("link")).info).toMatchObject({ kind: "SYMLINK", linkTarget: "target" });
    const followed = await bench().stat("link", { followLink: true });
    expect(followed).toMatchObject({ path: "/workspace/link", info: { kind: "REGULAR", sizeBytes: 5 } });
  });

  test.each([
    ["/dev/null", "CHARACTER_DEVICE"],
    ["/", "DIRECTORY"],
    [".", "DIRECTORY"],
    ["/proc/self/status", "REGULAR"],
  ])("%s is a %s", async (path, kind) => {
    expect((await bench().stat(path)).info.kind).toBe(kind);
  });

  test.each([
    ["missing", "FILE_NOT_FOUND"],
    ["missing/below", "FILE_NOT_FOUND"],
    ["/etc/passwd/below", "FILE_KIND"],
    ["/etc/passwd/below/more", "FILE_KIND"],
  ])("%s ends in %s", async (path, reason) => {
    expect(await refusal(bench().stat(path))).toMatchObject({ reason });
  });

  test("dangling links exist, and have no target", async () => {
    await bench().sh("cd /workspace; ln -s nowhere dangling; ln -s loop loop");
    for (const path of ["dangling", "loop"]) {
      expect((await bench().stat(path)).info.kind).toBe("SYMLINK");
      const error = await refusal(bench().stat(path, { followLink: true }));
      expect(error).toMatchObject({ reason: "FILE_NOT_FOUND" });
    }
  });

  test("files in a closed directory may not be inspected, also through a link", async () => {
    await bench().sh("mkdir -m 700 /secret; : >/secret/x; ln -s /secret/x /to-secret; ln -s /secret /to-dir");
    for (const path of ["/secret/x", "/secret/x/y", "/to-dir/x"]) {
      const error = await refusal(bench().stat(path, { user: "1000:1000" }));
      expect(error).toMatchObject({ reason: "FILE_PERMISSION" });
    }
  });

  test("an unknown user is refused", async () => {
    const error = await refusal(bench().stat(".", { user: "no-such-user" }));
    expect(error).toMatchObject({ reason: "INVALID_ARGUMENT", metadata: { field: "user" } });
  });
});

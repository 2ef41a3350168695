import { describe, expect, test } from "vitest";
import { IMAGES, refusal, useFileBench } from "./file-bench.ts";

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);
  const tree = async (path: string): Promise<string> =>
    (await bench().sh(`cd /workspace/${path} && find . | sort | tr '\\n' ' '`)).toString().trim();

  describe("mkdir", () => {
    test("a directory gets the requested mode, whatever it is", async () => {
      expect((await bench().makeDirectory("plain")).mode).toBe(0o755);
      for (const mode of [0, 0o700, 0o1777, 0o2770]) {
        const name = `mode-${mode.toString(8)}`;
        expect((await bench().makeDirectory(name, { mode })).mode).toBe(mode);
        expect((await bench().stat(name)).info.kind).toBe("DIRECTORY");
      }
    });

    test("parents are created with 0755 on request", async () => {
      expect(await refusal(bench().makeDirectory("a/b/c"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
      expect((await bench().makeDirectory("a/b/c", { createParents: true, mode: 0o700 })).mode).toBe(0o700);
      expect((await bench().stat("a/b")).info.mode).toBe(0o755);
    });

    test("an existing path is refused, or stays as it is", async () => {
      await bench().sh(
        "cd /workspace; mkdir -m 711 there; : >file; ln -s nowhere dangling; ln -s there alias",
      );
      for (const path of ["there", "file", "dangling", "alias", "/"]) {
        expect(await refusal(bench().makeDirectory(path))).toMatchObject({ reason: "FILE_EXISTS" });
      }
      for (const path of ["file", "dangling"]) {
        const again = bench().makeDirectory(path, { createParents: true });
        expect(await refusal(again)).toMatchObject({ reason: "FILE_EXISTS" });
      }
      expect((await bench().makeDirectory("there", { createParents: true, mode: 0o700 })).mode).toBe(0o711);
    });

    test("a failure names its cause", async () => {
      const asUser = { user: "1000:1000" };
      expect(await refusal(bench().makeDirectory("/etc/passwd/x"))).toMatchObject({ reason: "FILE_KIND" });
      expect(await refusal(bench().makeDirectory("/etc/x", asUser))).toMatchObject({
        reason: "FILE_PERMISSION",
      });
      const deep = bench().makeDirectory("/etc/x/y/z", { ...asUser, createParents: true });
      expect(await refusal(deep)).toMatchObject({ reason: "FILE_PERMISSION" });
      const below = bench().makeDirectory("/etc/passwd/x/y", { createParents: true });
      expect(await refusal(below)).toMatchObject({ reason: "FILE_KIND" });
    });
  });

  describe("remove", () => {
    test("removes a file, a link itself and an empty directory", async () => {
      await bench().sh(
        "cd /workspace; mkdir rm; cd rm; : >file; chmod 400 file; mkdir empty target; ln -s target link; : >target/x; chmod -R 777 .",
      );
      await bench().remove("rm/file");
      await bench().remove("rm/link");
      await bench().remove("rm/link", { allowMissing: true });
      await bench().remove("rm/empty");
      expect(await tree("rm")).toBe(". ./target ./target/x");
    });

    test("a directory that is not empty is removed only recursively, without following links", async () => {
      await bench().sh(
        "cd /workspace; mkdir -p full/deep outside; : >outside/kept; ln -s /workspace/outside full/deep/link; : >full/.hidden; chmod -R 777 full outside",
      );
      expect(await refusal(bench().remove("full"))).toMatchObject({ reason: "DIRECTORY_NOT_EMPTY" });
      await bench().remove("full", { recursive: true });
      expect(await refusal(bench().stat("full"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
      expect(await tree("outside")).toBe(". ./kept");
    });

    test("a link to a directory is removed alone, recursive or not", async () => {
      await bench().sh("cd /workspace; mkdir -p linked; : >linked/kept; ln -s linked alias2");
      await bench().remove("alias2", { recursive: true });
      expect(await tree("linked")).toBe(". ./kept");
    });

    test("a missing path is an error, unless that is allowed", async () => {
      for (const path of ["nothing", "nothing/below"]) {
        expect(await refusal(bench().remove(path))).toMatchObject({ reason: "FILE_NOT_FOUND" });
        expect(await refusal(bench().remove(path, { recursive: true }))).toMatchObject({
          reason: "FILE_NOT_FOUND",
        });
        await bench().remove(path, { allowMissing: true, recursive: true });
      }
      const onTheWay = bench().remove("/etc/passwd/x", { allowMissing: true });
      expect(await refusal(onTheWay)).toMatchObject({ reason: "FILE_KIND" });
    });

    test("the root, however it is written, and files of others stay", async () => {
      for (const path of ["/", "//.", "/tmp/.."]) {
        const error = await refusal(bench().remove(path, { recursive: true }));
        expect(error).toMatchObject({ reason: "INVALID_ARGUMENT", metadata: { field: "path" } });
      }
      await bench().sh("mkdir -p /others/dir/sub; : >/others/file; chmod -R a+rX /others");
      for (const path of ["/others/file", "/others/dir/sub", "/others/dir", "/others"]) {
        const error = await refusal(bench().remove(path, { recursive: true, user: "1000:1000" }));
        expect(error).toMatchObject({ reason: "FILE_PERMISSION" });
      }
      await bench().sh("test -f /others/file && test -d /others/dir/sub");
    });
  });

  describe("move", () => {
    test("a file, a link itself and a tree get another path", async () => {
      await bench().sh(
        "cd /workspace; mkdir -p from/tree/sub; printf x >from/file; ln -s nowhere from/link; : >from/tree/sub/leaf; chmod -R 777 from",
      );
      expect(await bench().move("from/file", "to-file")).toMatchObject({ kind: "REGULAR", sizeBytes: 1 });
      expect(await bench().move("from/link", "to-link")).toMatchObject({
        kind: "SYMLINK",
        linkTarget: "nowhere",
      });
      expect(await bench().move("from/tree", "new/place", { createParents: true })).toMatchObject({
        kind: "DIRECTORY",
      });
      expect(await tree("new")).toBe(". ./place ./place/sub ./place/sub/leaf");
      expect(await tree("from")).toBe(".");
    });

    test("an existing target stays unless the call replaces it", async () => {
      await bench().sh(
        "cd /workspace; mkdir mv; cd mv; echo a >a; echo b >b; mkdir d1 d2 full; : >full/x; ln -s full link; chmod -R 777 .",
      );
      for (const target of ["mv/b", "mv/d2", "mv/link", "mv/a"]) {
        expect(await refusal(bench().move("mv/a", target))).toMatchObject({ reason: "FILE_EXISTS" });
      }
      const overwrite = { overwrite: true };
      expect(await refusal(bench().move("mv/a", "mv/d2", overwrite))).toMatchObject({ reason: "FILE_KIND" });
      expect(await refusal(bench().move("mv/d1", "mv/b", overwrite))).toMatchObject({ reason: "FILE_KIND" });
      expect(await refusal(bench().move("mv/d1", "mv/full", overwrite))).toMatchObject({
        reason: "DIRECTORY_NOT_EMPTY",
      });
      expect(await tree("mv")).toBe(". ./a ./b ./d1 ./d2 ./full ./full/x ./link");
      await bench().move("mv/a", "mv/b", overwrite);
      await bench().move("mv/d1", "mv/d2", overwrite);
      await bench().move("mv/b", "mv/link", overwrite);
      await bench().move("mv/link", "mv/link", overwrite);
      expect(await bench().content("/workspace/mv/link")).toEqual(Buffer.from("a\n"));
      expect(await tree("mv")).toBe(". ./d2 ./full ./full/x ./link");
    });

    test("a directory cannot go into itself, by name or through a link", async () => {
      await bench().sh("cd /workspace; mkdir -p self/in; ln -s self/in inside; chmod -R 777 self");
      const error = await refusal(bench().move("self", "self/in/x"));
      expect(error).toMatchObject({ reason: "INVALID_ARGUMENT", metadata: { field: "target_path" } });
      expect(await refusal(bench().move("self", "inside/x"))).toMatchObject({ reason: "INVALID_ARGUMENT" });
      expect(await tree("self")).toBe(". ./in");
    });

    test("to another file system it arrives whole or not at all", async () => {
      await bench().sh(
        "cd /workspace; mkdir -p cross/sub; printf data >cross/sub/file; ln -s sub cross/link; chmod 640 cross/sub/file; chmod 777 cross cross/sub; chmod 666 cross/sub/file",
      );
      await bench().move("cross", "/dev/shm/cross");
      expect((await bench().content("/dev/shm/cross/sub/file")).toString()).toBe("data");
      expect((await bench().stat("/dev/shm/cross/link")).info.linkTarget).toBe("sub");
      expect(await refusal(bench().stat("cross"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
      await bench().sh(
        "rm -rf /dev/shm/*; dd if=/dev/zero of=/dev/shm/fill bs=1M count=60 2>/dev/null; head -c 9000000 /dev/zero >/workspace/large; chmod 666 /workspace/large",
      );
      expect(await refusal(bench().move("large", "/dev/shm/large"))).toMatchObject({ reason: "NO_SPACE" });
      expect(
        (await bench().sh("ls -A /dev/shm; stat -c %s /workspace/large; rm -rf /dev/shm/*")).toString(),
      ).toBe("fill\n9000000\n");
    });

    test("a missing or closed path is named", async () => {
      await bench().sh("cd /workspace; : >movable; chmod 666 movable");
      expect(await refusal(bench().move("missing", "x"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
      expect(await refusal(bench().move("movable", "missing/x"))).toMatchObject({ reason: "FILE_NOT_FOUND" });
      expect(await refusal(bench().move("movable", "/etc/passwd/x"))).toMatchObject({ reason: "FILE_KIND" });
      const asUser = { user: "1000:1000" };
      expect(await refusal(bench().move("/etc/passwd", "/tmp/x", asUser))).toMatchObject({
        reason: "FILE_PERMISSION",
      });
      expect(await refusal(bench().move("movable", "/etc/x", asUser))).toMatchObject({
        reason: "FILE_PERMISSION",
      });
    });
  });
});

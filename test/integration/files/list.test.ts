import { describe, expect, test } from "vitest";
import { BUSYBOX_IMAGE } from "../../support/images.ts";
import { IMAGES, refusal, useFileBench } from "./file-bench.ts";

describe.each(IMAGES)("$title", ({ spec }) => {
  const bench = useFileBench(spec);

  test("pages add up to the whole directory, in byte order", async () => {
    await bench().sh(
      'mkdir /workspace/many; cd /workspace/many; i=0; while [ $i -lt 250 ]; do : >"f$i"; i=$((i+1)); done; mkdir sub; : >.dot; : >sub/below',
    );
    const names: string[] = [];
    const sizes: number[] = [];
    for (let after: string | undefined; ; ) {
      const page = await bench().list("many", { after, limit: 100 });
      names.push(...page.entries.map(({ name }) => name));
      sizes.push(page.entries.length);
      if (!page.more) break;
      after = page.last;
    }
    expect(sizes).toEqual([100, 100, 52]);
    expect(names).toEqual([".dot", ...Array.from({ length: 250 }, (_, i) => `f${i}`), "sub"].sort());
  });

  test("pages of one listing read the directory once", async () => {
    await bench().sh(
      `mkdir -p /workspace/large /usr/local/sbin; cd /workspace/large; i=0; while [ $i -lt 1000 ]; do : >"f$i"; i=$((i+1)); done
      real=$(command -v find); : >/tmp/reads; chmod 666 /tmp/reads
      printf '#!/bin/sh\\necho >>/tmp/reads\\nexec %s "$@"\\n' "$real" >/usr/local/sbin/find; chmod 755 /usr/local/sbin/find`,
    );
    const names: string[] = [];
    let after: string | undefined;
    do {
      const page = await bench().list("large", { after, limit: 200 });
      names.push(...page.entries.map(({ name }) => name));
      after = page.more ? page.last : undefined;
      // Later entries appear on no page of this listing.
      await bench().sh(": >/workspace/large/late");
    } while (after !== undefined);
    await bench().sh("rm /usr/local/sbin/find");
    expect(names).toEqual(Array.from({ length: 1000 }, (_, i) => `f${i}`).sort());
    // busybox's shell uses its own find.
    const reads = spec.image === BUSYBOX_IMAGE ? "" : "\n";
    expect((await bench().content("/tmp/reads")).toString()).toBe(reads);
    // Reads a page again that was already read.
    const again = await bench().list("large", { after: names[9], limit: 2 });
    expect(again.entries.map(({ name }) => name)).toEqual(names.slice(10, 12));
  });

  test("a directory that is too large to be read at once is listed whole", async () => {
    const count = 5_000;
    await bench().sh(
      `mkdir /workspace/huge; cd /workspace/huge; i=0; while [ $i -lt ${count} ]; do : >"a name of some length $i"; i=$((i+1)); done`,
    );
    const { entries, more } = await bench().list("huge", { limit: count });
    const names = Array.from({ length: count }, (_, i) => `a name of some length ${i}`).sort();
    expect({ names: entries.map(({ name }) => name), more }).toEqual({ names, more: false });
    expect(entries.every(({ info }) => info.kind === "REGULAR" && info.sizeBytes === 0)).toBe(true);
  });

  test("a page continues after a name that has been removed", async () => {
    await bench().sh("mkdir /workspace/going; cd /workspace/going; : >a; : >b; : >c");
    const first = await bench().list("going", { limit: 2 });
    expect(first).toMatchObject({ more: true, last: "b" });
    await bench().sh("rm /workspace/going/b");
    const second = await bench().list("going", { after: first.last, limit: 2 });
    expect(second.entries.map(({ name }) => name)).toEqual(["c"]);
  });

  test("an empty directory has no entries", async () => {
    await bench().makeDirectory("empty");
    expect(await bench().list("empty")).toMatchObject({ entries: [], more: false });
  });

  test("every kind of entry is listed, and links are not followed", async () => {
    await bench().sh(
      "mkdir -p /workspace/kinds/dir; cd /workspace/kinds; mkfifo fifo; : >file; chmod 4711 file; ln -s /dev/null link; ln -s nowhere dangling",
    );
    const { entries } = await bench().list("kinds");
    expect(entries.map(({ name, info }) => [name, info.kind, info.linkTarget])).toEqual([
      ["dangling", "SYMLINK", "nowhere"],
      ["dir", "DIRECTORY", ""],
      ["fifo", "FIFO", ""],
      ["file", "REGULAR", ""],
      ["link", "SYMLINK", "/dev/null"],
    ]);
    expect(entries[3]?.info.mode).toBe(0o4711);
  });

  test("a link to a directory lists the directory", async () => {
    await bench().sh("mkdir /workspace/real; : >/workspace/real/x; ln -s real /workspace/alias");
    expect((await bench().list("alias")).entries.map(({ name }) => name)).toEqual(["x"]);
  });

  test.each([
    ["/nowhere", "FILE_NOT_FOUND"],
    ["/etc/passwd", "FILE_KIND"],
    ["/etc/passwd/x", "FILE_KIND"],
    ["/nowhere/x/y", "FILE_NOT_FOUND"],
  ])("listing %s is refused with %s", async (path, reason) => {
    expect(await refusal(bench().list(path))).toMatchObject({ reason });
  });

  test("a directory that may not be read is refused", async () => {
    await bench().sh("mkdir -m 311 /closed; mkdir -m 744 /shut; : >/shut/x");
    for (const path of ["/closed", "/shut"]) {
      expect(await refusal(bench().list(path, { user: "1000:1000" }))).toMatchObject({
        reason: "FILE_PERMISSION",
      });
    }
  });

  test("if entries vanish while a directory is read, it is read in two steps, and they are left out", async () => {
    await bench().sh(
      `mkdir -p /workspace/vanishing /usr/local/sbin; cd /workspace/vanishing; : >a; : >gone
      # Real ones would have to vanish within microseconds.
      printf '#!/bin/sh\ncase "$*" in *printf*) %s "$@"; exit 1;; esac; exec %s "$@"\n' "$(command -v find)" "$(command -v find)" >/usr/local/sbin/find
      printf '#!/bin/sh\nrm -f /workspace/vanishing/gone\nexec %s "$@"\n' "$(command -v stat)" >/usr/local/sbin/stat
      chmod 777 . /usr/local/sbin/find /usr/local/sbin/stat`,
    );
    const listing = bench().list("vanishing");
    await Promise.allSettled([listing]);
    await bench().sh("rm /usr/local/sbin/find /usr/local/sbin/stat");
    // busybox uses its own tools.
    const names = spec.image === BUSYBOX_IMAGE ? ["a", "gone"] : ["a"];
    await expect(listing).resolves.toMatchObject({ entries: names.map((name) => ({ name })) });
  });

  test("a list and a stat of every kind of entry agree", async () => {
    await bench().sh(
      `mkdir /workspace/agree; cd /workspace/agree; umask 0; : >file; echo 12345 >set; chmod 4755 set; mkdir -m 1777 dir; mkfifo pipe
      ln -s /etc/passwd link; ln -s 'a//b "c' dangling; touch -d '1960-01-02 03:04:05.25' old; : >'new
line'`,
    );
    for (const path of ["agree", "/dev", "/"]) {
      const { entries } = await bench().list(path);
      expect(entries.length).toBeGreaterThan(5);
      for (const { name, info } of entries) {
        const found = await bench().stat(`${path}/${name}`);
        if (path === "agree") expect(info, name).toEqual(found.info);
        else expect(info.kind, name).toBe(found.info.kind);
      }
    }
  });

  test("/proc, whose entries change all the time, can be listed", async () => {
    const { entries } = await bench().list("/proc");
    expect(entries.find(({ name }) => name === "1")?.info.kind).toBe("DIRECTORY");
  });
});

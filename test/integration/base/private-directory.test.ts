import { execFile } from "node:child_process";
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { beforeEach, describe, expect, test } from "vitest";
import { exposureAt, makePrivate } from "../../../src/base/private-directory.ts";
import { Layout } from "../../../src/workspaces/host/layout.ts";
import {
  berthsOwn,
  makeSharedRoot,
  sharedRootExposure,
} from "../../../src/workspaces/host/shared-directories.ts";
import { newDataDir } from "../../support/settings.ts";

const OTHER_USER = 54_321;
const modeOf = (place: string) => lstatSync(place).mode & 0o7777;

/** A directory that everyone may enter, like those above it. */
let place = "";
beforeEach(() => {
  place = newDataDir();
  chmodSync(place, 0o755);
});

const directory = () => ({ path: place, option: "data-dir", isOwn: (name: string) => name === "ours" });
const refusal = (message: string) =>
  expect.objectContaining({ reason: "INVALID_ARGUMENT", message: expect.stringContaining(message) });

describe("a directory of the service", () => {
  test("is created closed to others, and so are missing parents", () => {
    const below = path.join(place, "a", "b");
    makePrivate({ ...directory(), path: below });
    expect([modeOf(path.dirname(below)), modeOf(below)]).toEqual([0o700, 0o700]);
  });

  test.each([0o755, 0o750, 0o711, 0o2775])("is closed if it holds nothing else: %o", (mode) => {
    mkdirSync(path.join(place, "ours"));
    mkdirSync(path.join(place, "lost+found"));
    chmodSync(place, mode);
    expect(exposureAt(directory())).toBeUndefined();
    makePrivate(directory());
    expect(modeOf(place) & 0o777).toBe(0o700);
  });

  test("may hold anything if it is closed already", () => {
    writeFileSync(path.join(place, "theirs"), "");
    chmodSync(place, 0o700);
    makePrivate(directory());
  });

  test("may be named through a link", () => {
    const link = `${place}-link`;
    symlinkSync(place, link);
    makePrivate({ ...directory(), path: link });
    expect(modeOf(place)).toBe(0o700);
  });
});

describe("an open directory is left as it was, and the error says what to type,", () => {
  test("if it holds something else", () => {
    writeFileSync(path.join(place, "theirs"), "");
    const words = `holds "theirs", which is not Berth's, so it is not closed unasked. Name a directory of Berth's own with --data-dir, or type: sudo chmod 700 ${place}`;
    expect(() => makePrivate(directory())).toThrow(refusal(words));
    expect(exposureAt(directory())?.fix).toMatch(new RegExp(`type: sudo chmod 700 ${place}$`));
    expect(modeOf(place)).toBe(0o755);
  });

  test("if it belongs to another user, closed or not", () => {
    chownSync(place, OTHER_USER, OTHER_USER);
    for (const mode of [0o755, 0o700]) {
      chmodSync(place, mode);
      expect(() => makePrivate(directory())).toThrow(
        refusal(`belongs to the user ${OTHER_USER}, who could reach`),
      );
      expect(() => makePrivate(directory())).toThrow(
        refusal(`type: sudo chown 0 ${place} && sudo chmod 700 ${place}`),
      );
      expect(modeOf(place)).toBe(mode);
    }
  });

  test("if it belongs to another user and holds something else, and the advice is to use another", () => {
    writeFileSync(path.join(place, "theirs"), "");
    chownSync(place, OTHER_USER, OTHER_USER);
    expect(exposureAt(directory())?.fix).toBe("Name a directory of Berth's own with --data-dir.");
  });

  test("if it is world-writable, which nobody is asked to close", () => {
    writeFileSync(path.join(place, "theirs"), "");
    chmodSync(place, 0o1777);
    expect(() => makePrivate(directory())).toThrow(
      refusal("Name a directory of Berth's own with --data-dir."),
    );
    expect(exposureAt(directory())?.fix).not.toContain("chmod");
    expect(modeOf(place)).toBe(0o1777);
  });

  test.each(["/", "/etc", "/etc/ssl", "/var/lib", "/var/lib/dpkg", "/usr/local", "/usr/local/bin"])(
    "if it may be the system's, and the advice is to use another: %s",
    (system) => {
      const named = { ...directory(), path: system };
      expect(exposureAt(named)?.fix).toBe("Name a directory of Berth's own with --data-dir.");
    },
  );

  test("quoted as one word, whatever its name", () => {
    place = path.join(place, "it's mine");
    mkdirSync(place, { mode: 0o755 });
    writeFileSync(path.join(place, "theirs"), "");
    expect(exposureAt(directory())?.fix).toContain(`chmod 700 '${place.replace("'", "'\\''")}'`);
  });
});

describe("a shared root next to the service's own directories", () => {
  /** Behind a closed directory, where a shared root is shared itself. Names are relative to it. */
  const at = (name: string) => path.join(place, name);
  const ownOf = (shared: string, workspaces: string, data: string) =>
    berthsOwn(new Layout(at(workspaces), at(shared)), at(data));
  beforeEach(() => chmodSync(place, 0o700));

  const WORKSPACE = "0".repeat(64);
  const SHARING = "sandboxes would share";

  test.each([
    ["the data directory", "data", "data/workspaces", "data", "data is the same directory (--data-dir)"],
    ["what holds the data directory", "all", "workspaces", "all/data", "all/data is in it (--data-dir)"],
    ["a directory of the service's", "data/compiled", "workspaces", "data", "is Berth's own in"],
    ["the default workspaces root", "data/workspaces", "data/workspaces", "data", "is the same directory"],
    ["what holds the workspaces root", "all", "all/workspaces", "data", "all/workspaces is in it"],
    ["a directory in a workspace", `workspaces/${WORKSPACE}/tree`, "workspaces", "data", "is Berth's own in"],
    ["what holds other tenants' workspaces", "workspaces/owners", "workspaces", "data", "is Berth's own in"],
    ["a link to what holds the workspaces root", "link", "all/workspaces", "data", "all/workspaces is in it"],
    [
      "what holds the workspaces root by a link",
      "all",
      "link/workspaces",
      "data",
      "link/workspaces is in it",
    ],
  ])("is refused before it is opened: %s", async (_, shared, workspaces, data, words) => {
    mkdirSync(at("all"), { mode: 0o700 });
    symlinkSync("all", at("link"));
    const own = ownOf(shared, workspaces, data);
    expect(sharedRootExposure(at(shared), own)?.found).toContain(`${SHARING} ${at(shared)}, `);
    await expect(makeSharedRoot(at(shared), own)).rejects.toThrow(refusal(SHARING));
    await expect(makeSharedRoot(at(shared), own)).rejects.toThrow(refusal(words));
    expect(modeOf(at("all"))).toBe(0o700);
  });

  test.each([
    ["data/shared", "data/workspaces", "data"],
    ["workspaces/shared", "workspaces", "data"],
    ["shared", "data/workspaces", "data"],
    ["data/datasets", "data/workspaces", "data"],
    ["all-shared", "all", "all/data"],
  ])("is opened: %s, with workspaces in %s", async (shared, workspaces, data) => {
    const own = ownOf(shared, workspaces, data);
    expect(sharedRootExposure(at(shared), own)).toBeUndefined();
    expect(await makeSharedRoot(at(shared), own)).toBe(at(shared));
    expect(modeOf(at(shared))).toBe(0o777);
  });

  test("may hold them if it was closed and sandboxes share a directory in it", async () => {
    mkdirSync(at("all/shared"), { recursive: true });
    chmodSync(at("all"), 0o700);
    const own = ownOf("all", "all/workspaces", "all");
    expect(sharedRootExposure(at("all"), own)).toBeUndefined();
    expect(await makeSharedRoot(at("all"), own)).toBe(at("all/shared"));
    expect(modeOf(at("all"))).toBe(0o700);
  });
});

describe("a shared root", () => {
  test("open to others is closed, and one in it is shared", async () => {
    const shared = await makeSharedRoot(place, []);
    expect(shared).toBe(path.join(place, "shared"));
    expect([modeOf(place), modeOf(shared)]).toEqual([0o700, 0o777]);
    expect(await makeSharedRoot(place, [])).toBe(shared);
  });

  test("behind a closed directory is shared itself", async () => {
    chmodSync(place, 0o700);
    const root = path.join(place, "root");
    expect(await makeSharedRoot(root, [])).toBe(root);
    writeFileSync(path.join(root, "note"), "");
    expect(await makeSharedRoot(root, [])).toBe(root);
    expect(modeOf(root)).toBe(0o777);
    // Opens what the first call closed.
    chmodSync(place, 0o755);
    await expect(makeSharedRoot(root, [])).rejects.toThrow(refusal('it holds "note"'));
  });

  test("that was closed stays closed when a parent is closed too", async () => {
    const root = path.join(place, "root");
    mkdirSync(root);
    const shared = await makeSharedRoot(root, []);
    chmodSync(place, 0o700);
    expect(await makeSharedRoot(root, [])).toBe(shared);
  });

  test.each(["/", "/etc", "/var/lib"])(
    "that is the system's is refused, and the advice is to use another: %s",
    (system) => {
      const fix = "Name an empty directory or one behind a closed one with --shared-root.";
      expect(sharedRootExposure(system, [])?.fix).toBe(fix);
    },
  );

  test.each([0o755, 0o777, 0o700])("with old content, %o, is refused until that is moved", async (mode) => {
    writeFileSync(path.join(place, "-note"), "kept");
    mkdirSync(path.join(place, "more"));
    chmodSync(place, mode);
    await expect(makeSharedRoot(place, [])).rejects.toThrow(refusal("or move what it holds: sudo sh -ec '"));
    const [, script, rest] =
      /sudo sh -ec '([^']*)' (.*)/.exec(sharedRootExposure(place, [])?.fix ?? "") ?? [];
    expect([script, rest]).toEqual([
      'cd "$0"; mkdir shared; find . -mindepth 1 -maxdepth 1 ! -name shared ! -name lost+found -exec mv -t shared -- {} +; chmod 700 .',
      place,
    ]);
    expect(modeOf(place)).toBe(mode);
    await promisify(execFile)("sh", ["-ec", script ?? "", place]);
    const shared = await makeSharedRoot(place, []);
    expect(readFileSync(path.join(shared, "-note"), "utf8")).toBe("kept");
    expect([modeOf(place), modeOf(shared)]).toEqual([0o700, 0o777]);
  });
});

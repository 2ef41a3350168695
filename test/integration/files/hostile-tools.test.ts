import { beforeAll, describe, expect, test } from "vitest";
import { TEST_IMAGE } from "../../support/images.ts";
import { followTurns } from "../../support/turns.ts";
import { refusal, useFileBench } from "./file-bench.ts";

/** The event loop serves every caller, so nothing may hold it for longer. */
const MAX_TURN_MS = 100;
/** As much as fits into what Berth reads of such a tool at most. */
const FLOOD_BYTES = 16_000_000;
const RECORD = "//81a4 0 0 0 1 2026-01-01 00:00:00.0 +0000//./a";

/** Knows no records, and lists two names. */
const FIND = `case "$*" in *printf*) exit 1;; *) printf './a\\0./b\\0';; esac`;
/** Prints the flood where all names are asked for. */
const FLOOD_OF_NAMES = `case "$*" in *print0*) exec cat /tmp/flood;; esac`;
/** Knows no holes, and ends at a file that shrinks. */
const SMALL_TAR = `case "$*" in *S*) echo "unrecognized option" >&2; exit 1;; esac
cat /tmp/begin; echo "tar: file: short read" >&2; exit 1`;

/** A sandbox in which root has replaced the tools. */
describe("if the sandbox's own tools lie,", () => {
  const bench = useFileBench({ image: TEST_IMAGE, commandTimeoutMs: 5_000 });

  async function replaceTool(tool: string, line: string): Promise<void> {
    await bench().sh(
      `printf '#!/bin/sh\\n${line}\\n' >/usr/local/sbin/${tool}; chmod 755 /usr/local/sbin/${tool}`,
    );
  }

  beforeAll(async () => {
    await bench().write("file", "x");
  });

  test.each([
    ["stat", "echo nonsense"],
    ["stat", ":"],
    ["stat", "yes"],
    ["stat", "echo 81a4 1 2 3 4 5 6"],
    ["stat", "kill -9 $PPID"],
    ["find", "yes"],
    ["find", "tr '\\\\\\\\0' x </dev/zero"],
    ["find", "exit 3"],
    ["readlink", "yes"],
    ["head", "yes"],
    ["tar", "yes"],
    ["tar", "cat /dev/zero"],
    ["tar", ":"],
    ["tar", "exit 2"],
  ])("%s as `%s` ends in an error, in time, and costs nothing else", async (tool, line) => {
    await replaceTool(tool, line);
    await bench().sh("ln -sf file /workspace/link");
    const work = {
      stat: () => bench().stat("file"),
      find: () => bench().list("."),
      readlink: () => bench().stat("link"),
      head: () => bench().read("file"),
      tar: () => bench().downloadArchive("."),
    }[tool];
    const error = await refusal(work?.() ?? Promise.resolve());
    const reasons = line.startsWith("kill")
      ? /^TOO_MANY_OPERATIONS$/
      : /^(UNSUPPORTED|DEADLINE_EXCEEDED|FILE_NOT_FOUND)$/;
    expect(error.reason).toMatch(reasons);
    await bench().sh(`rm /usr/local/sbin/${tool}`);
    expect((await bench().stat("file")).info.sizeBytes).toBe(1);
  });

  const list = { find: FIND, stat: "exec cat /tmp/flood" };
  const archive = { find: FLOOD_OF_NAMES, tar: SMALL_TAR };
  test.each([
    ["records", list, `yes '${RECORD}'`],
    ["records of nothing", list, "yes ////."],
    ["targets of links", list, "cat /dev/zero"],
    ["names", archive, "yes a | tr '\\n' '\\0'"],
    ["empty names", archive, "cat /dev/zero"],
  ])("a flood of %s is refused, and does not block the event loop", async (_, tools, flood) => {
    await bench().sh(
      `{ ${flood}; } | head -c ${FLOOD_BYTES} >/tmp/flood; tar -cf - file | head -c 512 >/tmp/begin`,
    );
    for (const [tool, lines] of Object.entries(tools)) {
      await bench().sh(`cat >/usr/local/sbin/${tool} <<'END'
#!/bin/sh
${lines}
END
chmod 755 /usr/local/sbin/${tool}`);
    }
    const turns = followTurns();
    const error = await refusal("tar" in tools ? bench().downloadArchive(".") : bench().list("."));
    expect(Math.max(...turns())).toBeLessThan(MAX_TURN_MS);
    expect(error.reason).toBe("UNSUPPORTED");
    await bench().sh("rm /usr/local/sbin/*");
    expect((await bench().stat("file")).info.sizeBytes).toBe(1);
  });

  test.each([
    ["stat", 'mkdir /tmp/one && exec /usr/bin/stat "$@"'],
    ["find", '/usr/bin/find "$@" | head -c 131072'],
  ])("a watch reports nothing as removed because %s was killed halfway", async (tool, half) => {
    await bench().sh('mkdir /workspace/many; cd /workspace/many; seq -f "%090g" 3000 | xargs touch');
    await replaceTool(tool, `[ -e /tmp/half ] || exec /usr/bin/${tool} "$@"; ${half}; kill -9 $$`);
    const call = new AbortController();
    const watch = bench().watch("many", { signal: call.signal });
    try {
      expect((await watch.next()).value).toEqual({ type: "started", entryCount: 3000 });
      await bench().sh("touch /tmp/half");
      expect((await refusal(watch.next())).reason).toBe("TOO_MANY_OPERATIONS");
    } finally {
      call.abort();
      await bench().sh("rm -r /usr/local/sbin/* /tmp/* /workspace/many");
    }
  });
});

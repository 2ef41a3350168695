import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Request } from "../../support/client.ts";
import { removeContainers } from "../../support/docker.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { useLastingApp } from "../../support/lasting-service.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const LOOK_ALIKE = [".berth-notes", `.berth-${"0".repeat(40)}`];

describe.each(ENGINES)("on $name", ({ name }) => {
  const service = useLastingApp({ BERTH_ENGINE: name });
  const workspaces = new WorkspaceClient(() => service.client);

  test("the leftovers of a write are removed at the next start, and nothing else", async () => {
    const id = await workspaces.sandbox("cut");
    const { path: where } = await workspaces.get("cut");
    const deep = path.join(where, "a", "b");
    await service.client.output(id, "mkdir -p a/b");
    const stopped = Promise.withResolvers<void>();
    async function* half(): AsyncGenerator<Request> {
      yield { header: { sandbox_id: id, path: "a/b/file" } };
      yield { chunk: Buffer.alloc(1024 * 1024) };
      await stopped.promise;
    }
    const upload = service.client.upload("FileService/UploadFile", half()).catch(() => {});
    const temporary = async () => (await readdir(deep)).filter((each) => each.startsWith(".berth-"));
    await eventually(async () => (await temporary()).length === 1);
    const [left = ""] = await temporary();
    // A stopped writer cannot clean up at EOF. A container outlives the service.
    await service.client.output(
      id,
      "for f in /proc/[0-9]*/fd/1; do case $(readlink $f) in *.berth-*) p=${f#/proc/}; kill -STOP ${p%%/*};; esac; done",
    );
    if (name === "docker") await removeContainers(service.instance);
    await service.kill();
    stopped.resolve();
    await upload;
    expect(await temporary()).toEqual([left]);

    const outside = await mkdtemp(path.join(tmpdir(), "berth-outside-"));
    onTestFinished(() => rm(outside, { recursive: true, force: true }));
    await writeFile(path.join(outside, left), "outside");
    await symlink(outside, path.join(where, "link"));
    for (const alike of LOOK_ALIKE) await writeFile(path.join(deep, alike), "mine");
    // An archive that was being unpacked leaves a directory.
    await mkdir(path.join(where, left));
    await writeFile(path.join(where, left, "entry"), "x");

    await service.begin();
    const isSwept = async () => ![...(await readdir(where)), ...(await readdir(deep))].includes(left);
    await eventually(isSwept).catch(() => {});
    expect((await readdir(deep)).sort()).toEqual(LOOK_ALIKE.toSorted());
    expect((await readdir(where)).sort()).toEqual(["a", "link"]);
    expect(await readdir(outside)).toEqual([left]);
  });
});

import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { Client, type Request } from "../../support/client.ts";
import { removeContainers } from "../../support/docker.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";
import { newDataDir, newInstance } from "../../support/settings.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const LOOK_ALIKE = [".berth-notes", `.berth-${"0".repeat(40)}`];

describe.each(ENGINES)("on $name", ({ name }) => {
  const dataDir = newDataDir();
  const instance = newInstance();
  let serve: ServeProcess | undefined;
  let client: Client | undefined;
  const workspaces = new WorkspaceClient(() => client as Client);

  const start = async (): Promise<void> => {
    serve = await ServeProcess.start(["--engine", name], {}, { dataDir, instance });
    client = new Client(serve.address);
  };
  afterAll(async () => {
    client?.close();
    await serve?.stop();
    if (name === "docker") await removeContainers(instance);
    await rm(dataDir, { recursive: true, force: true });
  });

  test("what a write left is removed at the next start, and nothing else", async () => {
    await start();
    const id = await workspaces.sandbox("cut");
    const { path: where } = await workspaces.get("cut");
    const deep = path.join(where, "a", "b");
    await (client as Client).output(id, "mkdir -p a/b");
    const stopped = Promise.withResolvers<void>();
    async function* half(): AsyncGenerator<Request> {
      yield { header: { sandbox_id: id, path: "a/b/file" } };
      yield { chunk: Buffer.alloc(1024 * 1024) };
      await stopped.promise;
    }
    const upload = (client as Client).upload("FileService/UploadFile", half()).catch(() => {});
    const temporary = async () => (await readdir(deep)).filter((each) => each.startsWith(".berth-"));
    await eventually(async () => (await temporary()).length === 1, { timeoutMs: 30_000 });
    const [left = ""] = await temporary();
    // Stopped, what writes cannot tidy up when its input ends; a container outlives the service.
    await (client as Client).output(
      id,
      "for f in /proc/[0-9]*/fd/1; do case $(readlink $f) in *.berth-*) p=${f#/proc/}; kill -STOP ${p%%/*};; esac; done",
    );
    if (name === "docker") await removeContainers(instance);
    await serve?.stop("SIGKILL");
    client?.close();
    stopped.resolve();
    await upload;
    expect(await temporary()).toEqual([left]);

    const outside = await mkdtemp(path.join(tmpdir(), "berth-outside-"));
    onTestFinished(() => rm(outside, { recursive: true, force: true }));
    await writeFile(path.join(outside, left), "outside");
    await symlink(outside, path.join(where, "link"));
    for (const alike of LOOK_ALIKE) await writeFile(path.join(deep, alike), "mine");
    // What an archive was being unpacked into is a directory.
    await mkdir(path.join(where, left));
    await writeFile(path.join(where, left, "entry"), "x");

    await start();
    await eventually(async () => !(await readdir(where)).includes(left), { timeoutMs: 30_000 });
    await eventually(async () => !(await readdir(deep)).includes(left), { timeoutMs: 30_000 });
    expect((await readdir(deep)).sort()).toEqual(LOOK_ALIKE.toSorted());
    expect((await readdir(where)).sort()).toEqual(["a", "link"]);
    expect(await readdir(outside)).toEqual([left]);
  }, 120_000);
});

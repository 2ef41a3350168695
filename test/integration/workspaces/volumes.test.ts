import { Readable } from "node:stream";
import { beforeAll, expect, test } from "vitest";
import type { Logger } from "../../../src/base/logger.ts";
import type { EngineVolumes, OpenVolume } from "../../../src/engine/port.ts";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import type { StagedImport } from "../../../src/workspaces/storage.ts";
import { VolumeStorage } from "../../../src/workspaces/volumes/storage.ts";
import type { WorkspacePlace } from "../../../src/workspaces/workspace.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { sh, spec, useEngine } from "../engine/docker/support.ts";

const { engine } = useEngine();
const { signal } = new AbortController();
let ref = "";

beforeAll(async () => {
  ref = (await engine.create(spec())).ref;
});

/** Where a volume is in the container. */
const pathOf = (name: string): string => `/tmp/${name}`;

/** How often a volume is open. */
let places = 0;

/** Volumes that are directories of a container. A clone is made when it is first opened. */
function newVolumes(): EngineVolumes {
  const clones = new Map<string, string>();
  const open = async (name: string): Promise<OpenVolume> => {
    places++;
    return {
      path: pathOf(name),
      spawn: (request, sink, signal) => engine.spawn(ref, request, sink, signal),
      close: async () => void places--,
    };
  };
  const volumes: Partial<EngineVolumes> = {
    ...{ shareable: false, clones: true, sizeBytes: 1 << 30, locate: pathOf, open },
    async make({ name }, { cloneOf } = {}) {
      await sh(engine, ref, `mkdir ${pathOf(name)}`);
      if (cloneOf !== undefined) clones.set(name, cloneOf);
      return true;
    },
    async openBeside(name, other) {
      const source = clones.get(name);
      if (source !== undefined) await sh(engine, ref, `cp -a ${pathOf(source)}/. ${pathOf(name)}`);
      return Object.assign(await open(name), { otherPath: pathOf(other) });
    },
  };
  return volumes as EngineVolumes;
}

function newStorage(logger: Logger): VolumeStorage {
  const names = new TemporaryNames("one");
  return new VolumeStorage({ volumes: newVolumes(), names, instance: "one", logger });
}

/** Unpacks an archive of one file next to a workspace. */
function stage(storage: VolumeStorage, place: WorkspacePlace): Promise<StagedImport> {
  const archive = Readable.from([makeTar([{ name: "file", content: "content" }])]);
  return storage.stage(place, archive, { admit: async () => {}, take: () => true, signal });
}

test("a clone is recognized although files were imported into the source before it was made", async () => {
  const logger = new MemoryLog();
  const storage = newStorage(logger);
  const source = { owner: "acme", workspaceId: "source", number: 1, tree: 0 };
  const fork = { owner: "acme", workspaceId: "fork", number: 2, tree: 0 };
  await storage.make(source);
  await storage.make(fork, { forkOf: source });
  const staged = await stage(storage, source);
  await staged.merge(source);
  await staged.discard();
  await expect(storage.copy(source, fork, { maxBytes: 1 << 30, signal })).resolves.toBeGreaterThan(0);
  expect(await sh(engine, ref, `cd ${storage.pathOf(fork)}; ls -A . t0; cat t0/file`)).toBe(
    ".:\nt0\n\nt0:\nfile\ncontent",
  );
  expect(logger.lines).toEqual([]);
});

test("a merge frees its volume, which only a single pod may be able to mount, before the import is measured", async () => {
  const storage = newStorage(new MemoryLog());
  const place = { owner: "acme", workspaceId: "merged", number: 1, tree: 0 };
  await storage.make(place);
  const before = places;
  const staged = await stage(storage, place);
  expect(places).toBe(before + 1);
  await staged.merge(place);
  expect(places).toBe(before);
  expect(await storage.measure(place)).toBeGreaterThan(0);
});

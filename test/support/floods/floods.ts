import type { Client } from "../client.ts";

/** Something that a tenant repeats, many times at once, to get more than its share. */
export interface Flood {
  /** How many repeat it at the same time. */
  readonly width: number;
  /** The action to repeat. */
  again(client: Client, sandboxId: string): Promise<unknown>;
}

/** A directory with this many files that exists in the flooding tenant's sandbox. */
export const LONG_DIRECTORY = { path: "/tmp/long", entries: 1000 };

const UPLOAD_CHUNK = Buffer.alloc(256 << 10, "x");

export const FLOODS = {
  "short commands": { width: 64, again: (client, id) => client.run(id, ["true"]) },
  "long commands": { width: 200, again: (client, id) => client.run(id, ["sleep", "0.3"]) },
  "look-ups": {
    width: 128,
    again: (client, id) => client.call("SandboxService/GetSandbox", { sandbox_id: id }),
  },
  "long lists": {
    width: 32,
    again: (client, id) =>
      client.call("FileService/ListDirectory", {
        ...{ sandbox_id: id, path: LONG_DIRECTORY.path, page_size: LONG_DIRECTORY.entries },
      }),
  },
  output: { width: 8, again: (client, id) => client.exec(id, "head -c 100000000 /dev/zero").result },
  uploads: {
    width: 8,
    again: (client, id) => client.upload("FileService/UploadFile", upload(id)),
  },
  sandboxes: {
    width: 20,
    again: async (client) => client.deleteSandbox((await client.createSandbox()).sandbox_id),
  },
} satisfies Readonly<Record<string, Flood>>;

export type FloodName = keyof typeof FLOODS;

let uploads = 0;

function* upload(sandboxId: string): Generator<Record<string, unknown>> {
  yield { header: { sandbox_id: sandboxId, path: `/tmp/upload-${uploads++ % 16}` } };
  for (let chunk = 0; chunk < 64; chunk++) yield { chunk: UPLOAD_CHUNK };
}

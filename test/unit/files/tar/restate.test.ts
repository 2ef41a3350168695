import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { restateTar } from "../../../../src/files/tar/restate.ts";
import { readTar } from "../../../../src/files/tar/tar-reader.ts";
import { makeTar } from "../../../support/tar-builder.ts";

const FIFO = "6";
const HARD_LINK = "1";

test("of any number of FIFOs that it omits, an export remembers the names of some thousand", async () => {
  const fifos = Array.from({ length: 10_000 }, (_, index) => ({ name: `./${index}`, type: FIFO }));
  const links = [0, 4_000, 9_999].map((fifo) => ({
    ...{ name: `./link-${fifo}`, type: HARD_LINK, linkName: `./${fifo}` },
  }));
  const tar = Readable.from([makeTar([...fifos, ...links])]);
  const names: string[] = [];
  const restated = restateTar(tar, { whose: "the test", isHidden: () => false, importable: true });
  for await (const item of readTar(restated)) if (item.type === "entry") names.push(item.entry.name);
  expect(names).toEqual(["link-9999"]);
});

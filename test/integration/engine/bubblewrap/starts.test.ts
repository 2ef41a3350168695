import { expect, test } from "vitest";
import { spec } from "../docker/support.ts";
import { useBubblewrap } from "./support.ts";

const engine = useBubblewrap();
const COUNT = 40;

test("concurrent starts in one sandbox run one after another, in the order of the requests", async () => {
  const { ref } = await engine.create(spec());
  const started: number[] = [];
  const processes = await Promise.all(
    Array.from({ length: COUNT }, async (_, index) => {
      const spawned = await engine.spawn(
        ref,
        { argv: ["sleep", "100"], stdin: false },
        { data() {}, end() {} },
      );
      started.push(index);
      return spawned;
    }),
  );
  expect(started).toEqual(processes.map((_, index) => index));
  await engine.remove(ref);
});

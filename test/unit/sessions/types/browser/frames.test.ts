import { expect, test } from "vitest";
import type { z } from "zod";
import type { DevTools } from "../../../../../src/sessions/types/browser/devtools.ts";
import { placeOf } from "../../../../../src/sessions/types/browser/elements.ts";
import { Tab } from "../../../../../src/sessions/types/browser/tab.ts";
import { processorNowMs } from "../../../../support/measure.ts";

const signal = AbortSignal.timeout(60_000);

/** A tab of a browser that answers every request with this. */
function tabOf(answer: object): Tab {
  const send = async (request: { answer: z.ZodType }) => request.answer.parse(answer);
  return new Tab({ send } as unknown as DevTools, "t1", "page", "session");
}

function frameOf(id: string, childFrames: readonly unknown[] = []) {
  return { frame: { id, loaderId: "l", url: "" }, childFrames };
}

test("frames of another form are left out, and count towards the limit", async () => {
  let looked = 0;
  const forged = Array.from({ length: 5_000 }, () => ({
    get frame() {
      return ++looked;
    },
  }));
  const answer = {
    frameTree: frameOf("page", [frameOf("one"), 0, frameOf("two", forged), frameOf("three")]),
  };
  const frames = await tabOf(answer).frames(signal);
  expect(frames.map(({ frameId }) => frameId)).toEqual(["page", "one", "two"]);
  expect(looked).toBeLessThan(200);
});

test("a forged list of an element's boxes takes no longer than a real one with as many values", async () => {
  const element = { session: "session", frameId: "page", objectId: "1" };
  const place = async (count: number, quad: readonly number[]): Promise<number> => {
    const tab = tabOf({ quads: Array(count).fill(quad) });
    const before = processorNowMs();
    await placeOf(tab, element, signal).catch(() => {});
    return processorNowMs() - before;
  };
  // As many values.
  const real = await place(30_000, [0, 0, 9, 0, 9, 9, 0, 9]);
  expect(await place(270_000, [])).toBeLessThan(real);
});

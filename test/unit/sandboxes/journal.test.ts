import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { SandboxJournal } from "../../../src/sandboxes/journal.ts";
import type { SandboxRecord } from "../../../src/sandboxes/record.ts";
import type { SandboxEventBody } from "../../../src/sandboxes/sandbox.ts";
import { State } from "../../../src/state/state.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { memoryStore } from "../../support/memory-store.ts";

const PROGRESS = { currentBytes: 0, totalBytes: 0, layersDone: 0, layersTotal: 0 };

test("thousands of events that wait for a full disk are stored in parts, in order", async () => {
  const store = memoryStore();
  /** How many events each transaction has appended. */
  const appended: number[] = [];
  let isFull = false;
  const transaction = <T>(work: () => T): T =>
    store.transaction(() => {
      appended.push(0);
      const result = work();
      // A full disk often shows only when the transaction is committed.
      if (isFull) throw new BerthError("NO_SPACE", "The disk is full.");
      return result;
    });
  const append = store.events.append.bind(store.events);
  store.events.append = (event) => {
    appended.push((appended.pop() ?? 0) + 1);
    append(event);
  };
  const clock = new ManualClock();
  const state = new State<SandboxEventBody>({ ...store, transaction }, { clock, logger: new MemoryLog() });
  const journal = new SandboxJournal({ ...state, store: store.sandboxes });
  const sandbox = { owner: "me", sandboxId: "box", generation: 1 } as SandboxRecord;
  const emit = (number: number): void =>
    journal.emit(sandbox, { type: "IMAGE_PULL", image: `${number}`, progress: PROGRESS });
  isFull = true;
  for (let number = 1; number <= 2_000; number++) emit(number);
  await clock.advance(5_000);
  isFull = false;
  await clock.advance(5_000);
  emit(2_001);
  expect(Math.max(...appended)).toBeLessThan(600);
  const numbers = store.events.load().map(({ body, sequence }) => [sequence, "image" in body && body.image]);
  expect(numbers).toEqual(Array.from({ length: 2_001 }, (_, index) => [index + 1, `${index + 1}`]));
});

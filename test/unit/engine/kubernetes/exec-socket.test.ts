import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import type { WebSocket } from "ws";
import type { Api } from "../../../../src/engine/kubernetes/api.ts";
import { ExecSocket } from "../../../../src/engine/kubernetes/exec-socket.ts";
import { settled } from "../../../support/manual-clock.ts";

/** A connection that accepts frames, and sends none before {@link flush}. */
class SlowSocket extends EventEmitter {
  readonly OPEN = 1;
  readonly readyState = 1;
  bufferedAmount = 0;
  readonly #unsent: (() => void)[] = [];

  resume(): void {}

  send(frame: Buffer, onSent: () => void): void {
    this.bufferedAmount += frame.length;
    this.#unsent.push(onSent);
  }

  flush(): void {
    this.bufferedAmount = 0;
    for (const onSent of this.#unsent.splice(0)) onSent();
  }
}

test("a writer of short pieces waits long before they make up the bytes that may be buffered", async () => {
  const slow = new SlowSocket();
  const api = { path: () => "", connect: async () => slow as unknown as WebSocket } as Partial<Api> as Api;
  const options = { stdin: true, tty: false };
  const socket = await ExecSocket.open(api, "pod", ["cat"], options, { data() {}, close() {} });
  const pieces = 10_000;
  let written = 0;
  const writing = (async () => {
    for (; written < pieces; written++) await socket.write(Buffer.from("x"));
  })();
  await settled();
  expect(written).toBeGreaterThan(0);
  expect(written).toBeLessThan(100);
  const before = written;
  slow.flush();
  await settled();
  expect(written).toBeGreaterThan(before);
  void writing;
});

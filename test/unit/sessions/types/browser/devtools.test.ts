import { describe, expect, test } from "vitest";
import { z } from "zod";
import { DevTools, DevToolsError } from "../../../../../src/sessions/types/browser/devtools.ts";
import { MessageStream } from "../../../../../src/sessions/types/browser/message-stream.ts";
import { eventually } from "../../../../support/eventually.ts";
import { keptBytes } from "../../../../support/kept-bytes.ts";

const NEVER = new AbortController().signal;
const MIB = 1024 * 1024;

/** A browser whose answers a test controls. */
function fake(held: (bytes: number) => void = () => {}) {
  const sent: { id: number; method: string; sessionId?: string }[] = [];
  const broken: string[] = [];
  const wire = {
    write: async (data: Buffer) => void sent.push(JSON.parse(data.subarray(0, -1).toString())),
    pause: () => {},
    resume: () => {},
    held,
  };
  const devtools = new DevTools(wire, (problem) => broken.push(problem));
  const say = (text: string): void => devtools.push(Buffer.from(`${text}\0`));
  return { devtools, sent, broken, say };
}

describe("the DevTools protocol", () => {
  test("an answer is parsed by its schema, and an invalid one fails only its request", async () => {
    const { devtools, sent, say } = fake();
    const answer = z.object({ value: z.number() });
    const good = devtools.send({ method: "A.b", answer, session: "s" }, NEVER);
    const bad = devtools.send({ method: "A.c", answer }, NEVER);
    expect(sent).toMatchObject([{ method: "A.b", sessionId: "s" }, { method: "A.c" }]);
    say(`{"id":${sent[1]?.id},"result":{"value":"seven"}}`);
    say(`{"id":${sent[0]?.id},"result":{"value":7}}`);
    // Await them together: a rejection that is not awaited yet is an unhandled error.
    await Promise.all([
      expect(good).resolves.toEqual({ value: 7 }),
      expect(bad).rejects.toThrow("A.c: the browser gave an answer of another form"),
    ]);
  });

  test.each([
    ["no JSON", "{"],
    ["a list", "[1]"],
    ["an error that is none", '{"error":7}'],
    ["an error of its own", '{"error":{"message":"no such node"}}'],
    ["nothing", "{}"],
  ])("a request whose answer is %s fails", async (_, text) => {
    const { devtools, sent, say } = fake();
    const request = devtools.send({ method: "A.b", answer: z.object({}) }, NEVER);
    say(`{"id":${sent[0]?.id},${text.slice(1)}`);
    await expect(request).rejects.toThrow(DevToolsError);
  });

  test("an answer nested too deep for its schema fails its request", async () => {
    const { devtools, sent, say } = fake();
    type Tree = { inner?: Tree | undefined };
    const tree: z.ZodType<Tree> = z.object({
      get inner() {
        return tree.optional();
      },
    });
    const request = devtools.send({ method: "A.b", answer: tree }, NEVER);
    say(`{"id":${sent[0]?.id},"result":${'{"inner":'.repeat(100_000)}{}${"}".repeat(100_000)}}`);
    await expect(request).rejects.toThrow(DevToolsError);
  });

  test("unrequested messages and garbage are dropped", async () => {
    const { devtools, sent, say, broken } = fake();
    const seen: unknown[] = [];
    devtools.on("Page.a", z.object({ n: z.number() }), (params) => seen.push(params));
    for (const text of [
      "garbage",
      '{"id":999,"result":{}}',
      '{"id":-1}',
      "{}",
      '{"method":"Page.b","params":{}}',
    ])
      say(text);
    for (const params of ['{"n":"x"}', "null", "[]", '{"n":1}'])
      say(`{"method":"Page.a","params":${params}}`);
    await eventually(() => seen.length > 0);
    expect(seen).toEqual([{ n: 1 }]);
    const request = devtools.send({ method: "A.b", answer: z.object({}) }, NEVER);
    say(`{"id":${sent[0]?.id},"result":{}}`);
    await expect(request).resolves.toEqual({});
    expect(broken).toEqual([]);
  });

  test("an answer with too many bytes or values fails its request, and never blocks the event loop", async () => {
    const { devtools, sent, say } = fake();
    for (const filling of [
      "x".repeat(33 * MIB),
      "x".repeat(5 * MIB),
      '",'.repeat(MIB),
      "[".repeat(3 * MIB),
    ]) {
      const request = devtools.send({ method: "A.b", answer: z.unknown() }, NEVER);
      say(`{"id":${sent.at(-1)?.id},"result":${filling}}`);
      await expect(request).rejects.toThrow("A.b: the answer is too large");
    }
  });

  test("one long value is accepted without parsing it", async () => {
    const { devtools, sent, say } = fake();
    const content = Buffer.alloc(12 * MIB, "picture");
    const request = devtools.fetch({ method: "Page.captureScreenshot" }, NEVER);
    say(`{"id":${sent[0]?.id},"result":{"data":"${content.toString("base64")}"},"sessionId":"s"}`);
    expect((await request).equals(content)).toBe(true);
    const none = devtools.fetch({ method: "Page.captureScreenshot" }, NEVER);
    say(`{"id":${sent[1]?.id},"result":{"data":"never ends`);
    await expect(none).rejects.toThrow(DevToolsError);
    const refused = devtools.fetch({ method: "Page.captureScreenshot" }, NEVER);
    say(`{"id":${sent[2]?.id},"error":{"message":"Not attached"}}`);
    await expect(refused).rejects.toThrow("Not attached");
  });

  test("a message without an end takes little memory, unless a large answer is wanted", async () => {
    const { devtools } = fake();
    const before = await keptBytes();
    const kept = async () => ((await keptBytes()) - before) / MIB;
    const pushPart = () => {
      for (let i = 0; i < 20; i++) devtools.push(Buffer.alloc(MIB, "x"));
    };
    pushPart();
    expect(await kept()).toBeLessThan(2);
    devtools.push(Buffer.from("\0"));
    const stop = new AbortController();
    const wanted = devtools.fetch({ method: "Page.captureScreenshot" }, stop.signal);
    pushPart();
    expect(await kept()).toBeGreaterThan(20);
    stop.abort(new Error("stopped"));
    await expect(wanted).rejects.toThrow();
    expect(await kept()).toBeLessThan(2);
  });

  test("an unfinished message that is dropped fails its request, and takes no memory", async () => {
    const held: number[] = [];
    const { devtools, sent, say } = fake((bytes) => held.push(bytes));
    const request = devtools.send({ method: "A.b", answer: z.unknown() }, NEVER);
    devtools.push(Buffer.from(`{"id":${sent[0]?.id},"result":"${"x".repeat(MIB)}`));
    expect(held).toEqual([expect.closeTo(MIB, -3)]);
    devtools.dropUnfinished();
    expect(held.at(-1)).toBeLessThan(1_000);
    say('"}');
    await expect(request).rejects.toThrow("A.b: the answer is too large");
    expect(held.at(-1)).toBe(0);
  });

  test("a long list is parsed item by item, and is refused if it has no end or an item is too large", async () => {
    const { devtools, sent, say } = fake();
    const item = z.object({ n: z.number(), text: z.string() });
    const ask = () =>
      devtools.list({ method: "A.list" }, "nodes", item, { bytes: Number.POSITIVE_INFINITY }, NEVER);
    const items = Array.from({ length: 50_000 }, (_, n) => ({ n, text: '],}"\\ [{ 東 '.repeat(10) }));
    const good = ask();
    say(`{"id":${sent.at(-1)?.id},"result":{"nodes":${JSON.stringify(items)}},"sessionId":"s"}`);
    expect(await good).toEqual(items);
    for (const [bad, problem] of [
      ['{"n":1,"text":"a"}', "too large"],
      [`{"n":1,"text":"${"x".repeat(MIB)}"}]`, "too large"],
      ["[".repeat(MIB), "too large"],
      ['{"n":"one"}]', "another form"],
      ["{n}]", "another form"],
    ] as const) {
      const request = ask();
      say(`{"id":${sent.at(-1)?.id},"result":{"nodes":[${bad}`);
      await expect(request).rejects.toThrow(problem);
    }
  });

  test("a list is refused if it and earlier ones have no room together", async () => {
    const { devtools, sent, say } = fake();
    const room = { bytes: 200 };
    const ask = async () => {
      const list = devtools.list({ method: "A.list" }, "nodes", z.object({ text: z.string() }), room, NEVER);
      say(`{"id":${sent.at(-1)?.id},"result":{"nodes":[{"text":"${"x".repeat(100)}"}]}}`);
      return list;
    };
    expect(await ask()).toHaveLength(1);
    await expect(ask()).rejects.toThrow("too large");
  });

  test("a browser that does not read is abandoned", async () => {
    const broken: string[] = [];
    const wire = {
      write: () => new Promise<void>(() => {}),
      pause: () => {},
      resume: () => {},
      held: () => {},
    };
    const devtools = new DevTools(wire, (problem) => broken.push(problem));
    for (let i = 0; i < 20; i++) devtools.notify("A.b", { text: "x".repeat(MIB) });
    expect(broken).toEqual(["it does not read what it is sent"]);
    await expect(devtools.send({ method: "A.b", answer: z.unknown() }, NEVER)).rejects.toThrow(
      "does not read",
    );
  });

  test("a close and an abort fail requests in progress", async () => {
    const { devtools } = fake();
    const stop = new AbortController();
    const stopped = devtools.send({ method: "A.b", answer: z.unknown() }, stop.signal);
    stop.abort(new Error("stopped"));
    await expect(stopped).rejects.toThrow();
    const closed = devtools.send({ method: "A.b", answer: z.unknown() }, NEVER);
    devtools.close(new Error("gone"));
    await expect(closed).rejects.toThrow("gone");
    await expect(devtools.send({ method: "A.b", answer: z.unknown() }, NEVER)).rejects.toThrow("gone");
  });
});

describe("a stream of messages", () => {
  const MAX_BYTES = 2 * MIB;

  function collect() {
    const messages: { text: string; whole: boolean }[] = [];
    const flow: string[] = [];
    let busy = (): void => {};
    const stream = new MessageStream({
      maxBytes: () => MAX_BYTES,
      message: (bytes, whole) => {
        messages.push({ text: bytes.toString(), whole });
        busy();
      },
      pause: () => void flow.push("pause"),
      resume: () => void flow.push("resume"),
      held: () => {},
    });
    const onMessage = (act: () => void): void => {
      busy = act;
    };
    return { stream, messages, flow, onMessage };
  }

  test("messages arrive complete, however they are split", async () => {
    const data = Buffer.from("one\0two\0\0three\0four");
    for (let size = 1; size <= data.length; size++) {
      const { stream, messages } = collect();
      for (let at = 0; at < data.length; at += size) stream.push(data.subarray(at, at + size));
      // On a busy machine a slice may end before all of them are handled.
      await eventually(() => messages.length >= 3);
      expect(messages.map(({ text }) => text)).toEqual(["one", "two", "three"]);
    }
  });

  test("a message that is too large arrives truncated, and the next one is complete", async () => {
    const { stream, messages } = collect();
    stream.push(Buffer.from('{"id":7,'));
    for (let i = 0; i < 3; i++) stream.push(Buffer.alloc(MIB, "x"));
    stream.push(Buffer.from("\0next\0"));
    await eventually(() => messages.length >= 2);
    expect(messages.map(({ whole }) => whole)).toEqual([false, true]);
    expect(messages[0]?.text).toMatch(/^\{"id":7,x+$/);
    expect(messages[0]?.text.length).toBe(256);
    expect(messages[1]?.text).toBe("next");
  });

  test("many messages are handled in slices, while the source is paused", async () => {
    const { stream, messages, flow, onMessage } = collect();
    onMessage(() => {
      const end = performance.now() + 1;
      while (performance.now() < end);
    });
    stream.push(Buffer.from("m\0".repeat(100)));
    expect(messages.length).toBeLessThan(50);
    while (messages.length < 100) await new Promise(setImmediate);
    await new Promise(setImmediate);
    expect(flow).toEqual(["pause", "resume"]);
  });
});

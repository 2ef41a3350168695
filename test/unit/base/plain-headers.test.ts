import fc from "fast-check";
import { expect, test } from "vitest";
import { PlainHeaders } from "../../../src/base/plain-headers.ts";

const name = fc.constantFrom("a", "A", "grpc-status", "x-bin", "Set-Cookie", "no name", "");
const value = fc.oneof(
  fc.string({ unit: fc.constantFrom("a", ",", " ", "\t", "é"), maxLength: 5 }),
  fc.constantFrom("a\nb", "\n", "語", "x\0"),
);
const change = fc.oneof(
  fc.tuple(fc.constantFrom("append" as const, "set" as const), name, value),
  fc.tuple(fc.constant("delete" as const), name, fc.constant("")),
);

test("does to headers what Node's own do", () => {
  fc.assert(
    fc.property(fc.array(change), (changes) => {
      const both = [new PlainHeaders(), new Headers()] as const;
      for (const [act, at, to] of changes) {
        const [own, native] = both.map((headers) => {
          try {
            return headers[act](at, to);
          } catch (error) {
            return (error as Error).name;
          }
        });
        // Neither deletes an invalid name, but Node's class throws.
        if (act !== "delete") expect(own).toBe(native);
      }
      const [own, native] = both.map((headers) => ({
        entries: [...headers],
        names: [...headers.keys()],
        values: [...headers.values()],
        cookies: headers.getSetCookie(),
        looked: ["a", "A", "SET-cookie", "none"].map((at) => [headers.has(at), headers.get(at)]),
        copy: [...new PlainHeaders(headers)],
        each: eachOf(headers),
      }));
      expect(own).toEqual(native);
    }),
  );
});

const PAIRS: [string, string][] = [
  ["a", "1"],
  ["A", "2"],
];

test.each<ConstructorParameters<typeof Headers>[0]>([
  undefined,
  {},
  { a: "1", B: "2" },
  PAIRS,
  new Headers({ a: "1" }),
])("is made of %o as Node's own is", (init) => {
  expect([...new PlainHeaders(init)]).toEqual([...new Headers(init)]);
});

function eachOf(headers: Headers): string[] {
  const found: string[] = [];
  headers.forEach((text, at) => {
    found.push(`${at}=${text}`);
  });
  return found;
}

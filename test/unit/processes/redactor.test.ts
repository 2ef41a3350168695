import fc from "fast-check";
import { expect, test } from "vitest";
import { Redactor } from "../../../src/processes/redactor.ts";
import { SecretSearch } from "../../../src/processes/secret-search.ts";
import { scaled } from "../../support/scale.ts";

async function redactorOf(...secrets: string[]): Promise<Redactor> {
  return new Redactor(await SecretSearch.of(secrets.map((secret) => Buffer.from(secret))));
}

async function redact(secrets: readonly string[], chunks: readonly Buffer[]): Promise<string> {
  const redactor = await redactorOf(...secrets);
  return Buffer.concat([...chunks.map((chunk) => redactor.push(chunk)), redactor.end()]).toString("latin1");
}

/** The expected output of a redactor, by the simplest algorithm. */
function expected(secrets: readonly string[], text: string): string {
  const spans: [number, number][] = [];
  for (const secret of secrets) {
    for (let at = text.indexOf(secret); at !== -1; at = text.indexOf(secret, at + 1)) {
      spans.push([at, at + secret.length]);
    }
  }
  spans.sort(([one], [other]) => one - other);
  let out = "";
  let done = 0;
  let covered = 0;
  for (const [from, to] of spans) {
    if (from >= covered) out += `${text.slice(done, from)}[redacted]`;
    covered = Math.max(covered, to);
    done = covered;
  }
  return out + text.slice(done);
}

const letters = fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 6 });

test("with any secrets and any chunks, secrets are redacted and everything else is unchanged", async () => {
  const cases = fc.record({
    secrets: fc.array(letters, { minLength: 1, maxLength: 4 }),
    chunks: fc.array(fc.string({ unit: fc.constantFrom("a", "b", "c", "d"), maxLength: 9 }), {
      maxLength: 12,
    }),
  });
  await fc.assert(
    fc.asyncProperty(cases, async ({ secrets, chunks }) => {
      const text = chunks.join("");
      const written = await redact(
        secrets,
        chunks.map((chunk) => Buffer.from(chunk)),
      );
      expect(written).toBe(expected(secrets, text));
    }),
    { numRuns: scaled(50_000, 2_000) },
  );
});

test("possible secrets are held back until they are known not to be one", async () => {
  const redactor = await redactorOf("secret");
  expect(redactor.push(Buffer.from("a sec")).toString()).toBe("a ");
  expect(redactor.push(Buffer.from("ond")).toString()).toBe("second");
  expect(redactor.push(Buffer.from("sec")).toString()).toBe("");
  expect(redactor.push(Buffer.from("ret.")).toString()).toBe("[redacted].");
  expect(redactor.push(Buffer.from("secret")).toString()).toBe("[redacted]");
  expect(redactor.push(Buffer.from("secr")).toString()).toBe("");
  expect(redactor.end().toString()).toBe("secr");
});

test("bytes that are not text pass unchanged", async () => {
  const bytes = Buffer.from(Array.from({ length: 4096 }, (_, at) => (at * 7) % 256));
  const redactor = await redactorOf("no such secret");
  const out = Buffer.concat([redactor.push(bytes), redactor.end()]);
  expect(out.equals(bytes)).toBe(true);
});

test("the worst input for a naive search takes linear time", async () => {
  const secret = `${"a".repeat(60_000)}b`;
  const redactor = await redactorOf(secret);
  let length = 0;
  // A search that restarts after each byte would compare a trillion bytes.
  for (let byte = 0; byte < 200_000; byte++) length += redactor.push(Buffer.from("a")).length;
  length += redactor.push(Buffer.alloc(8 << 20, "a")).length;
  length += redactor.end().length;
  expect(length).toBe(200_000 + (8 << 20));
}, 60_000);

test("many secrets that begin alike cost hardly more than one", async () => {
  const chunk = Buffer.from("aaaaaaaaac".repeat(6_553));
  const redactorOfMany = (count: number): Promise<Redactor> =>
    redactorOf(...Array.from({ length: count }, (_, index) => `${"a".repeat(30)}${index}b`));
  const [many, one] = [await redactorOfMany(64), await redactorOfMany(1)];
  const timeOf = (redactor: Redactor): number => {
    const begin = performance.now();
    redactor.push(chunk);
    return performance.now() - begin;
  };
  const least = { many: Number.POSITIVE_INFINITY, one: Number.POSITIVE_INFINITY };
  // One after another they cost 25 times as much. On a busy machine the engine takes a while to compile the search.
  await expect
    .poll(() => {
      for (let round = 0; round < 20; round++) {
        least.many = Math.min(least.many, timeOf(many));
        least.one = Math.min(least.one, timeOf(one));
      }
      return least.many / least.one;
    })
    .toBeLessThan(5);
});

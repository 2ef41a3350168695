import fc from "fast-check";
import { expect, test } from "vitest";
import { environment, secretReferences } from "../../../../src/rpc/validate/fields.ts";
import { refusal } from "./refusal.ts";

test("accepts ordinary and odd variables unchanged", () => {
  const variables = { PATH: "/bin", EMPTY: "", "with space": "a=b\nc", ключ: "значение" };
  expect(environment("env", variables)).toEqual(variables);
});

test.each([
  [{ "": "x" }, "env: a variable has an empty name"],
  [{ "A=B": "x" }, 'env["A=B"]: a name must not contain "=" or NUL'],
  [{ "A\0B": "x" }, 'env["A\\u0000B"]: a name must not contain "=" or NUL'],
  [{ A: "x\0" }, 'env["A"]: a value must not contain NUL'],
])("refuses %j", (variables, why) => {
  expect(refusal(() => environment("env", variables))).toBe(why);
});

test("accepts 1024 variables and no more", () => {
  const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`V${i}`, ""]));
  expect(refusal(() => environment("env", many(1024)))).toBeUndefined();
  expect(refusal(() => environment("env", many(1025)))).toMatch(/1025 variables/);
});

test("accepts what Linux passes on in one string and no more", () => {
  const value = (bytes: number) => ({ A: "x".repeat(bytes) });
  expect(refusal(() => environment("env", value(128 * 1024 - 3)))).toBeUndefined();
  expect(refusal(() => environment("env", value(128 * 1024 - 2)))).toMatch(/128 KiB/);
});

test("accepts 768 KiB and no more", () => {
  const values = (last: number) =>
    Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`V${i}`, "x".repeat(i < 7 ? 98_300 : last)]));
  expect(refusal(() => environment("env", values(98_300)))).toBeUndefined();
  expect(refusal(() => environment("env", values(98_301)))).toBe(
    "env: has 786433 bytes; at most 786432 are allowed. Pass more through a file.",
  );
});

test("accepts exactly what can be passed to a program", () => {
  const text = fc.string({ unit: fc.constantFrom("a", "=", "\0", "é"), maxLength: 4 });
  fc.assert(
    fc.property(fc.dictionary(text, text, { noNullPrototype: true }), (variables) => {
      const good = Object.entries(variables).every(
        ([name, value]) =>
          name !== "" && !name.includes("=") && !name.includes("\0") && !value.includes("\0"),
      );
      expect(refusal(() => environment("env", variables)) === undefined).toBe(good);
    }),
  );
});

test("a variable that holds a secret has a name of at most 256 bytes", () => {
  const named = (length: number) => ({ ["é".repeat(length / 2)]: "token" });
  expect(refusal(() => secretReferences("secret_env", named(256)))).toBeUndefined();
  expect(refusal(() => secretReferences("secret_env", named(258)))).toBe(
    `secret_env["${"é".repeat(100)}"]: has 258 bytes; at most 256 are allowed`,
  );
});

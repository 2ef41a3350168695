import { expect, test } from "vitest";
import { z } from "zod";
import { parseWith } from "../../../src/sessions/parse.ts";

const schema = z.strictObject({
  command: z.string().min(1).max(3),
  count: z.number().int().min(1).max(9).optional(),
  how: z.enum(["x", "y"]).optional(),
  list: z.array(z.string()).min(1).max(2).optional(),
  either: z.union([z.string(), z.number()]).optional(),
  keys: z.union([z.string().max(3), z.array(z.string().min(1)).max(2)]).optional(),
  kind: z.discriminatedUnion("type", [z.strictObject({ type: z.literal("a") })]).optional(),
  ratio: z.number().positive().optional(),
  named: z.string().regex(/^a$/, "must be a").optional(),
});

test.each<[unknown, string]>([
  [{}, "params.command: is required"],
  [{ command: 1 }, "params.command: must be a string"],
  [{ command: "" }, "params.command: must have at least 1 characters"],
  [{ command: "long" }, "params.command: must have at most 3 characters"],
  [{ command: "a", count: 0 }, "params.count: must be at least 1"],
  [{ command: "a", count: 10 }, "params.count: must be at most 9"],
  [{ command: "a", count: 1.5 }, "params.count: must be a whole number"],
  [{ command: "a", ratio: 0 }, "params.ratio: must be more than 0"],
  [{ command: "a", how: "z" }, 'params.how: must be one of "x", "y"'],
  [{ command: "a", list: [] }, "params.list: must have at least 1 items"],
  [{ command: "a", list: [1] }, "params.list.0: must be a string"],
  [{ command: "a", either: true }, "params.either: must be a string or a number"],
  [{ command: "a", keys: ["a", "b", "c"] }, "params.keys: must have at most 2 items"],
  [{ command: "a", keys: ["a", ""] }, "params.keys.1: must have at least 1 characters"],
  [{ command: "a", keys: ["a", 1] }, "params.keys: at 1: must be a string"],
  [{ command: "a", keys: "long" }, "params.keys: must have at most 3 characters"],
  [{ command: "a", keys: 1 }, "params.keys: must be a string or a list"],
  [{ command: "a", kind: { type: 1 } }, 'params.kind.type: must be "a"'],
  [{ command: "a", named: "b" }, "params.named: must be a"],
  [{ comand: "a" }, 'params.command: is required; params: "comand" is not known; is it "command"?'],
  [{ command: "a", ["k".repeat(65)]: 1 }, `params: "${"k".repeat(64)}" is not known`],
  [5, "params: must be an object"],
])("%j", (given, problem) => {
  expect(() => parseWith(schema, "params", given)).toThrow(expect.objectContaining({ message: problem }));
});

import { z } from "zod";
import { hasFewValues, type Json } from "../../../base/json.ts";
import { findAll } from "../../../base/replace-bytes.ts";
import { trimEndOf } from "../../../base/trim.ts";
import type { BrowserUse, Outcome } from "./browser.ts";
import { TO_JSON } from "./page-scripts.ts";
import { describeException, type Evaluated, evaluated } from "./tab.ts";

/** Characters of a result's JSON. A longer result is returned as truncated text. */
const MAX_RESULT = 256 * 1024;
const MAX_VALUES = 20_000;
/** Clients of the API accept no deeper nesting. */
const MAX_DEPTH = 24;
const OBJECT_GROUP = "berth";

const cutText = z.object({ text: z.string().max(MAX_RESULT), length: z.number() });

/** Runs a script in the page, in the same world as the page's own scripts. */
export async function evaluate({ tab, signal }: BrowserUse, script: string): Promise<Outcome> {
  const how = { awaitPromise: true, userGesture: true, objectGroup: OBJECT_GROUP };
  const run = async (expression: string): Promise<Evaluated> => {
    // Only the REPL mode allows top-level await, and it does not await the script's result.
    const params = { expression, replMode: true, ...how };
    const done = await tab.send("Runtime.evaluate", params, evaluated, signal);
    const { subtype, objectId } = done.result;
    if (subtype !== "promise" || objectId === undefined || done.exceptionDetails !== undefined) return done;
    return tab.send("Runtime.awaitPromise", { promiseObjectId: objectId }, evaluated, signal);
  };
  let done = await run(script);
  // A script with a syntax error did not run at all, so it can be tried in another form.
  if (isSyntaxError(done, "Illegal return statement")) done = await run(`(async () => {${script}\n})()`);
  if (isSyntaxError(done, "Function statements require a function name"))
    done = await run(`(${trimEndOf(script.trim(), ";")}\n)`);
  const { type, objectId, description } = done.result;
  const isFunction = type === "function" && done.exceptionDetails === undefined;
  if (isFunction && (await isAllOf(script, description, signal))) {
    const params = { objectId, functionDeclaration: "function() { return this() }", ...how };
    done = await tab.send("Runtime.callFunctionOn", params, evaluated, signal);
  }
  if (done.exceptionDetails !== undefined) {
    const data = { result: null, error: describeException(done), truncated: false };
    return { data, programFailed: true };
  }
  const { value, truncated } = await jsonOf(done, tab, signal);
  return { data: { result: value, error: null, truncated } };
}

function isSyntaxError({ exceptionDetails }: Evaluated, problem: string): boolean {
  return exceptionDetails?.exception?.description?.startsWith(`SyntaxError: ${problem}`) ?? false;
}

/**
 * Whether the script is nothing but a function, which must then be called. A script that merely ends in one, such as an
 * assignment, must not.
 */
async function isAllOf(script: string, code: string | undefined, signal: AbortSignal): Promise<boolean> {
  if (code === undefined || code === "" || code.startsWith("class") || code.length > script.length)
    return false;
  const all = Buffer.from(script);
  const part = Buffer.from(code);
  const [at] = await findAll(all, part, 0, signal);
  if (at === undefined) return false;
  const rest = `${all.toString("utf8", 0, at)} ${all.toString("utf8", at + part.length)}`;
  return /^[\s();]*$/.test(rest.replace(/\/\*[\s\S]*?(?:\*\/|$)|\/\/.*/g, ""));
}

interface Value {
  readonly value: Json;
  readonly truncated: boolean;
}

async function jsonOf({ result }: Evaluated, tab: BrowserUse["tab"], signal: AbortSignal): Promise<Value> {
  const { type, objectId, unserializableValue, description = "" } = result;
  if (objectId === undefined) {
    if (unserializableValue !== undefined) return cut(unserializableValue);
    if (typeof result.value === "string") return cut(result.value);
    return {
      value: typeof result.value === "number" || typeof result.value === "boolean" ? result.value : null,
      truncated: false,
    };
  }
  if (type === "symbol" || type === "function") return cut(description);
  const params = {
    objectId,
    functionDeclaration: TO_JSON,
    arguments: [{ value: MAX_RESULT }],
    returnByValue: true,
    objectGroup: OBJECT_GROUP,
  };
  const answer = await tab.send("Runtime.callFunctionOn", params, evaluated, signal);
  const json = cutText.safeParse(answer.result.value);
  // Values that have no JSON, such as a cyclic object, are returned as a description.
  if (answer.exceptionDetails !== undefined || !json.success) return cut(description);
  const { text, length } = json.data;
  const parsed = length > text.length ? undefined : parse(text);
  return parsed === undefined
    ? { value: text.toWellFormed(), truncated: true }
    : { value: parsed, truncated: false };
}

function cut(text: string): Value {
  return { value: text.slice(0, MAX_RESULT).toWellFormed(), truncated: text.length > MAX_RESULT };
}

/** Undefined if it has too many values, is nested too deep, or is no JSON. */
function parse(text: string): Json | undefined {
  if (!hasFewValues(Buffer.from(text), MAX_VALUES)) return undefined;
  try {
    const parsed = JSON.parse(text.toWellFormed()) as Json;
    return isFlatEnough(parsed, MAX_DEPTH) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function isFlatEnough(value: Json, depth: number): boolean {
  if (typeof value !== "object" || value === null) return true;
  return depth > 0 && Object.values(value).every((inner) => isFlatEnough(inner, depth - 1));
}

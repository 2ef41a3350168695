import { z } from "zod";
import { hasFewValues, type Json } from "../../../base/json.ts";
import { trimEndOf } from "../../../base/trim.ts";
import type { BrowserUse, Outcome } from "./browser.ts";
import { TO_JSON } from "./page-scripts.ts";
import { describeException, type Evaluated, evaluated } from "./tab.ts";

/** Characters of the JSON of a result; what is longer comes as text, cut. */
const MAX_RESULT = 256 * 1024;
const MAX_VALUES = 20_000;
/** Clients of the API take no deeper nesting. */
const MAX_DEPTH = 24;
const OBJECT_GROUP = "berth";

const cutText = z.object({ text: z.string().max(MAX_RESULT), length: z.number() });

/** Runs a script in the page, as its own scripts run. */
export async function evaluate({ tab, signal }: BrowserUse, script: string): Promise<Outcome> {
  const how = { awaitPromise: true, userGesture: true, objectGroup: OBJECT_GROUP };
  const run = async (expression: string): Promise<Evaluated> => {
    // Top-level await is for the REPL alone, which does not await what the script comes to.
    const params = { expression, replMode: true, ...how };
    const done = await tab.send("Runtime.evaluate", params, evaluated, signal);
    const { subtype, objectId } = done.result;
    if (subtype !== "promise" || objectId === undefined || done.exceptionDetails !== undefined) return done;
    return tab.send("Runtime.awaitPromise", { promiseObjectId: objectId }, evaluated, signal);
  };
  let done = await run(script);
  // Nothing of a script with a syntax error has run.
  if (isSyntaxError(done, "Illegal return statement")) done = await run(`(async () => {${script}\n})()`);
  if (isSyntaxError(done, "Function statements require a function name"))
    done = await run(`(${trimEndOf(script.trim(), ";")}\n)`);
  const { type, objectId, description } = done.result;
  if (type === "function" && done.exceptionDetails === undefined && isAllOf(script, description)) {
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

/** Whether a function is all that a script is: one that merely ends in a function, as an assignment does, does not call it. */
function isAllOf(script: string, code = ""): boolean {
  const at = code === "" || code.startsWith("class") ? -1 : script.indexOf(code);
  if (at === -1) return false;
  const rest = `${script.slice(0, at)} ${script.slice(at + code.length)}`;
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
  // What has no JSON, such as an object that contains itself, is described.
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

/** Undefined where it is too much. */
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

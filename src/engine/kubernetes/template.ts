import { readFile } from "node:fs/promises";
import type { V1Pod } from "@kubernetes/client-node";
import { parse } from "yaml";
import { BerthError } from "../../base/errors.ts";

/**
 * Reads the template for pods: YAML or JSON, of kind Pod. The API server checks its fields when a pod is created.
 * @throws `INVALID_ARGUMENT` with the file and what is wrong.
 */
export async function readTemplate(file: string): Promise<V1Pod> {
  const refuse = (problem: string, cause?: unknown): BerthError =>
    new BerthError("INVALID_ARGUMENT", `--pod-template ${JSON.stringify(file)}: ${problem}`, { cause });
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    throw refuse(`cannot be read (${error.code})`, error);
  });
  let found: unknown;
  try {
    found = parse(text);
  } catch (error) {
    throw refuse((error as Error).message.split("\n")[0] ?? "", error);
  }
  if (typeof found !== "object" || found === null)
    throw refuse("holds no object. Write a Pod, with metadata and spec.");
  const { kind = "Pod", spec = {}, metadata = {} } = found as Record<string, unknown>;
  if (kind !== "Pod") throw refuse(`is of kind ${JSON.stringify(kind)}. Write a Pod.`);
  for (const [name, part] of Object.entries({ spec, metadata })) {
    if (typeof part !== "object" || part === null || Array.isArray(part))
      throw refuse(`${name} is not an object.`);
  }
  const { containers = [] } = spec as { readonly containers?: unknown };
  if (!Array.isArray(containers) || containers.some((one) => typeof one !== "object" || one === null))
    throw refuse("spec.containers is not a list of objects. Leave it out, or give its containers names.");
  return found as V1Pod;
}

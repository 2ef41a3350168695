import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { readTemplate } from "../../../../src/engine/kubernetes/template.ts";

async function read(text: string) {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-template-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const file = path.join(directory, "template.yaml");
  await writeFile(file, text);
  return readTemplate(file);
}

test("a template may leave out whatever it does not set", async () => {
  expect(await read("spec: { priorityClassName: low }")).toEqual({ spec: { priorityClassName: "low" } });
  expect(await read("metadata: { labels: { tier: low } }")).toMatchObject({ metadata: {} });
});

test.each([
  ["an empty file", "", "holds no object"],
  ["another kind", "kind: Deployment", 'is of kind "Deployment"'],
  ["an empty spec", "spec:", "spec is not an object"],
  ["empty containers", "spec:\n  containers:\n", "spec.containers is not a list of objects"],
  ["a container that is none", "spec:\n  containers: [main]\n", "spec.containers is not a list of objects"],
])("a template with %s is refused", async (_, text, problem) => {
  await expect(read(text)).rejects.toMatchObject({
    reason: "INVALID_ARGUMENT",
    message: expect.stringContaining(problem),
  });
});

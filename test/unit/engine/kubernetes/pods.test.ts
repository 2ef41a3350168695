import { expect, onTestFinished, test } from "vitest";
import { Pods } from "../../../../src/engine/kubernetes/pods.ts";
import { openApi, serveApi } from "../../../support/kubernetes-api.ts";

test("an outage of the watch is reported once, until the watch is open again", async () => {
  let watches = 0;
  let isOut = true;
  const cluster = await serveApi((request, response) => {
    if (!request.url?.includes("watch=1")) {
      response.end('{ "metadata": { "resourceVersion": "1" }, "items": [] }');
      return;
    }
    watches++;
    if (isOut) response.writeHead(403).end('{ "reason": "Forbidden", "message": "not now" }');
    else response.writeHead(200).flushHeaders();
  });
  const api = await openApi(cluster);
  const warnings: string[] = [];
  const logger = {
    ...{ debug() {}, info() {}, error() {} },
    warn: (_fields: object, message: string) => warnings.push(message),
  };
  const pods = new Pods(api, "instance", logger);
  onTestFinished(() => pods.close());
  await pods.follow();
  await expect.poll(() => watches).toBe(3);
  expect(warnings).toEqual(["lost sight of the pods; Berth keeps retrying"]);
  expect(pods.broken).toBeDefined();
  isOut = false;
  await expect.poll(() => pods.broken).toBeUndefined();
});

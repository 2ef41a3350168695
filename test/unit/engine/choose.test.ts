import { expect, test } from "vitest";
import { chooseEngine } from "../../../src/engine/choose.ts";
import { serveApi, writeKubeconfig } from "../../support/kubernetes-api.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { testSettings } from "../../support/settings.ts";

test("a start that waits for another service to leave its instance on Kubernetes can be stopped", async () => {
  const stop = new AbortController();
  const held = { metadata: { resourceVersion: "5" }, spec: { holderIdentity: "other" } };
  const cluster = await serveApi((_, response) => {
    // Once it is stopped, the lease is free.
    response.end(JSON.stringify(stop.signal.aborted ? {} : held), () => stop.abort());
  });
  const settings = testSettings({ engine: "kubernetes", kubeconfig: await writeKubeconfig(cluster) });
  const choosing = chooseEngine(settings, "one", new MemoryLog(), () => [], stop.signal);
  await expect(choosing).rejects.toMatchObject({ reason: "CANCELED" });
});

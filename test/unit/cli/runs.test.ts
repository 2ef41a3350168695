import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { expect, onTestFinished, test } from "vitest";
import { RunEventType, RunService } from "../../../gen/ts/berth/v1/run_pb.js";
import { runHere } from "../../support/program-here.ts";

const EVENTS: readonly [RunEventType, number][] = [
  [RunEventType.CREATED, 1_000],
  [RunEventType.STARTED, 2_000],
  [RunEventType.ENDED, 3_000],
  [RunEventType.RESET, 4_000],
  [RunEventType.STARTED, 5_010],
  // Meanwhile the clock was set back.
  [RunEventType.ENDED, 4_500],
];

test("a run is followed to its newest end, also if the service's clock was set back before it", async () => {
  const adapter = connectNodeAdapter({
    routes: ({ service }) =>
      service(RunService, {
        getRun: () => ({ run: { runId: "run", startTime: timestampFromMs(5_000) } }),
        async *watchRun(_request, { signal }) {
          for (const [type, ms] of EVENTS)
            yield { item: { case: "event" as const, value: { type, time: timestampFromMs(ms) } } };
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
        },
      }),
  });
  const server = http.createServer(adapter);
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const env = { BERTH_ADDRESS: `127.0.0.1:${(server.address() as AddressInfo).port}` };
  const late = sleep(10_000, { code: "still runs", stdout: "" }, { ref: false });
  const { code, stdout } = await Promise.race([runHere(["runs", "watch", "run"], { env }), late]);
  const told = stdout.trim().replace(/^\S+ /gm, "").split("\n");
  expect({ code, told }).toEqual({
    code: 0,
    told: ["created", "started", "ended unspecified: ", "reset", "started", "ended unspecified:"],
  });
});

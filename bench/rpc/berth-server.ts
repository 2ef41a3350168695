import fs from "node:fs";
import { pino } from "pino";
import { Registry } from "prom-client";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { ProcessMetrics } from "../../src/server/process-metrics.ts";
import { createRpcServer } from "../../src/server/server.ts";
import { makeAnswer } from "./answer.ts";

// Berth's port as in production, including log and metrics, with one handler that does nothing.
const metrics = new Registry();
new ProcessMetrics(metrics);
const server = createRpcServer({
  listen: { kind: "tcp", host: "127.0.0.1", port: 0 },
  routes: (router) => router.service(SandboxService, { getStats: makeAnswer }),
  logger: pino(pino.destination({ dest: fs.openSync("/dev/null", "w"), sync: false, minLength: 4096 })),
  metrics,
});
const address = await server.start();
process.send?.(address.kind === "tcp" ? address.port : 0);

import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { runHere } from "../../support/program-here.ts";

test("a command about thousands of things takes turns, and does not use up the connections of a service", async () => {
  let open = 0;
  let most = 0;
  const server = http.createServer((_request, response) => {
    response.writeHead(200, { "content-type": "application/proto" }).end();
  });
  server.on("connection", (socket) => {
    most = Math.max(most, ++open);
    socket.once("close", () => open--);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const ids = Array.from({ length: 3_000 }, (_, index) => `run-${index}`);
  const { code, stdout, stderr } = await runHere(["runs", "rm", "-f", ...ids], {
    env: { BERTH_ADDRESS: address },
  });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(new Set(stdout.trim().split("\n"))).toEqual(new Set(ids));
  // At most 200 at once. Each may still be closing when the next one opens.
  expect(most).toBeLessThanOrEqual(400);
});

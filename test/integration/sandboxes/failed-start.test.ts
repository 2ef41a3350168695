import { once } from "node:events";
import net from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectContainers, expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { removeContainers } from "../../support/docker.ts";
import { endOf, ServeProcess, startProgram } from "../../support/program.ts";

const IN_VAIN = new URL("../../support/start-in-vain.ts", import.meta.url).pathname;

/** Another program on the port. */
const other = net.createServer();
let listen = "";

beforeAll(async () => {
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  listen = `127.0.0.1:${(other.address() as net.AddressInfo).port}`;
});
afterAll(() => other.close());

test("a start whose port is taken releases everything, and keeps what an earlier run left", async () => {
  let service = await ServeProcess.start();
  const { instance, dataDir } = service;
  try {
    let client = new Client(service.address);
    const { sandbox_id: sandboxId } = await client.createSandbox();
    const detached = client.exec(sandboxId, "echo on; sleep 600", { on_disconnect: "ON_DISCONNECT_DETACH" });
    await detached.until("on");
    const processId = await detached.processId;
    client.close();
    await service.stop("SIGKILL");

    // If it exits at all, nothing keeps it running: no timer, no connection, no file.
    const env = { BERTH_LISTEN: listen, BERTH_INSTANCE: instance, BERTH_DATA_DIR: dataDir };
    const { exitCode, stdout, stderr } = await endOf(startProgram([], { entry: [IN_VAIN], env }));
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
    expect(JSON.parse(stdout.toString())).toEqual({
      reason: expect.stringContaining("another program uses it"),
      connects: 0,
      errors: [],
    });
    await expectContainers(instance, 1);

    service = await service.again();
    client = new Client(service.address);
    expect((await client.getSandbox(sandboxId)).state).toBe("SANDBOX_STATE_RUNNING");
    const { process } = await client.call("ProcessService/GetProcess", { process_id: processId });
    expect(process.exit_status).toBeNull();
    client.close();
    expect((await service.stop()).exitCode).toBe(0);
    await expectNoContainers(instance);
  } finally {
    await service.dispose();
    await removeContainers(instance);
  }
});

import { once } from "node:events";
import net from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startTestApp, type TestApp, useApp } from "../support/app.ts";
import { ENGINES } from "../support/engines.ts";
import { eventually } from "../support/eventually.ts";
import type { Execution } from "../support/execution.ts";
import { type ExitStatus, inSeconds, seconds } from "../support/wire.ts";

/** How much longer than its timeout a command may last, in seconds, whatever it does. */
const LATEST_END = 3;

/** Attacks run in sandboxes that may have few processes. */
const FEW = { resources: { pids_limit: 64 } };

/** Starts as many processes as there may be, again and again. */
const FORK_BOMB =
  "trap '' TERM; b() { while :; do b & done; }; mkfifo /tmp/f; exec 9<>/tmp/f; echo begun; b 2>/dev/null & read x <&9";

/** Stops every process it sees but itself and process 1, again and again. */
const STOP_ALL =
  "while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null";

const MANY_CHILDREN =
  "trap '' TERM; i=0; while [ $i -lt 50 ]; do sleep 7001 & i=$((i+1)); done; echo begun; wait; wait";

function expectTimedOut(exit: ExitStatus, timeout: number): void {
  expect(exit.cause).toBe("EXIT_CAUSE_TIMED_OUT");
  expect(inSeconds(exit.duration)).toBeLessThan(timeout + LATEST_END);
}

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const service = useApp(settings);
  let sandboxId = "";

  beforeEach(async () => {
    sandboxId = (await service.client.createSandbox(FEW)).sandbox_id;
    // Once a command has run, there is a shell for the next.
    await service.client.output(sandboxId, "true");
    return () => service.client.deleteSandbox(sandboxId);
  });

  const start = async (line: string, timeout: number): Promise<Execution> => {
    const execution = service.client.exec(sandboxId, line, { timeout: seconds(timeout) });
    await execution.until("begun\n");
    return execution;
  };

  const write = () =>
    service.client.call("FileService/WriteFile", {
      sandbox_id: sandboxId,
      path: "/tmp/written",
      data: Buffer.from("data"),
    });

  const expectUsable = async (): Promise<void> => {
    expect(await service.client.output(sandboxId, "echo fine")).toBe("fine\n");
    await write();
    expect(await service.client.output(sandboxId, "cat /tmp/written")).toBe("data");
  };

  test.each([
    ["that ignores SIGTERM", "trap '' TERM; echo begun; while :; do sleep 0.05; done"],
    ["with many children that ignore SIGTERM", MANY_CHILDREN],
    ["that is stopped", "echo begun; kill -STOP $$"],
    ["that fills the bound of processes", FORK_BOMB],
    // On Docker a start that was stopped half-way in keeps the container from all that follows.
    ...(name === "bubblewrap" ? [["that stops every process it sees", `echo begun; ${STOP_ALL}`]] : []),
  ])("a command ends in time %s, and the sandbox works on", async (_, line) => {
    const execution = await start(line ?? "", 3);
    expectTimedOut((await execution.result).exit, 3);
    await expectUsable();
  });
});

describe("on docker, as root of the sandbox", () => {
  const service = useApp({ engine: "docker" });

  test("a command ends in time whose /bin/sh is one that sleeps", async () => {
    const { sandbox_id: id } = await service.client.createSandbox(FEW);
    await service.client.output(id, "true");
    const line = `cp "$(readlink -f /bin/sh)" /bin/real-sh
      printf '#!/bin/real-sh\\nexec sleep 7011\\n' >/tmp/sh; chmod 755 /tmp/sh; mv -f /tmp/sh /bin/sh
      echo begun; exec sleep 7012`;
    const execution = service.client.exec(id, line, { timeout: seconds(3) });
    await execution.until("begun\n");
    expectTimedOut((await execution.result).exit, 3);
    const began = performance.now();
    const next = await service.client.run(id, "echo never", { timeout: seconds(8) }).then(
      ({ exit_status }) => exit_status.cause,
      (error: { details: string }) => error.details,
    );
    expect(next).toMatch(/TIMED_OUT|did not begin/);
    expect(performance.now() - began).toBeLessThan((8 + LATEST_END) * 1000);
    await service.client.deleteSandbox(id);
  });
});

describe("on a docker daemon of another machine", () => {
  let link: net.Server;
  let service: TestApp;

  beforeAll(async () => {
    // To the service a daemon at a port is one whose processes it cannot see.
    link = net.createServer({ allowHalfOpen: true }, (near) => {
      const far = net.connect({ path: "/var/run/docker.sock", allowHalfOpen: true });
      for (const socket of [near, far]) socket.on("error", () => {});
      near.pipe(far).pipe(near);
      near.once("close", () => far.destroy());
    });
    link.listen(0, "127.0.0.1");
    await once(link, "listening");
    const { port } = link.address() as net.AddressInfo;
    service = await startTestApp({ engine: "docker", dockerHost: `tcp://127.0.0.1:${port}` });
  });
  afterAll(async () => {
    await service.stop();
    link.close();
  });

  test("a command that nobody can end takes its sandbox along, in time", async () => {
    const { sandbox_id: id } = await service.client.createSandbox(FEW);
    await service.client.output(id, "true");
    const execution = service.client.exec(id, `echo begun; ${STOP_ALL}`, { timeout: seconds(3) });
    await execution.until("begun\n");
    const { exit } = await execution.result;
    expectTimedOut(exit, 3);
    expect(exit.message).toContain("could not be ended");
    await eventually(async () => (await service.client.getSandbox(id)).termination !== null);
    const { termination } = await service.client.getSandbox(id);
    expect(termination?.cause).toBe("TERMINATION_CAUSE_UNCONTROLLABLE");
  });
});

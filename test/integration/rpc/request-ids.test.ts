import { afterEach, describe, expect, test } from "vitest";
import { expectContainers, useApp } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { CuttableLink } from "../../support/cuttable-link.ts";
import { MISSING_IMAGE } from "../../support/images.ts";

const app = useApp();

afterEach(async () => {
  const { sandboxes } = await app.client.call("SandboxService/ListSandboxes");
  await Promise.all(sandboxes.map(({ sandbox_id: id }) => app.client.deleteSandbox(id)));
});

const create = (request: Readonly<Record<string, unknown>>) =>
  app.client.call("SandboxService/CreateSandbox", request);

describe("CreateSandbox", () => {
  test("a retry gets the first answer and creates nothing", async () => {
    const request = {
      request_id: "retry",
      spec: { env: { A: "1", B: "2", C: "3" }, labels: { x: "y", z: "w" } },
    };
    const first = await create(request);
    const again = await create(request);
    expect(again).toEqual(first);
    // A map has no order.
    const turned = {
      request_id: "retry",
      spec: { env: { C: "3", A: "1", B: "2" }, labels: { z: "w", x: "y" } },
    };
    expect(await create(turned)).toEqual(first);
    await expectContainers(app.instance, 1);
  });

  test("the same request many times at once is carried out once", async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, () => create({ request_id: "many" })));
    expect(new Set(answers.map(({ sandbox }) => sandbox.sandbox_id)).size).toBe(1);
    await expectContainers(app.instance, 1);
  });

  test("the same id for another request is refused, and does nothing", async () => {
    await create({ request_id: "taken", spec: { labels: { a: "1" } } });
    const other = await failureOf(create({ request_id: "taken", spec: { labels: { a: "2" } } }));
    expect(other).toMatchObject({ code: "ALREADY_EXISTS", reason: "REQUEST_ID_REUSED" });
    expect(other.message).toContain("request_id");
    await expectContainers(app.instance, 1);
  });

  test("a failed request may be retried", async () => {
    const request = { request_id: "again", sandbox_id: "again", spec: { image: MISSING_IMAGE } };
    expect((await failureOf(create(request))).reason).toBe("IMAGE_UNAVAILABLE");
    expect((await failureOf(create(request))).reason).toBe("IMAGE_UNAVAILABLE");
  });

  test("an id used for one method is free for another", async () => {
    const { sandbox } = await create({ request_id: "shared" });
    await app.client.call("SandboxService/PauseSandbox", {
      sandbox_id: sandbox.sandbox_id,
      request_id: "shared",
    });
    await app.client.call("SandboxService/ResumeSandbox", {
      sandbox_id: sandbox.sandbox_id,
      request_id: "shared",
    });
  });

  test("a caller whose connection broke gets by a retry the sandbox of its first try, or a new one", async () => {
    const link = await CuttableLink.to(app.app.address);
    const far = new Client(link.address);
    await far.call("SandboxService/GetStats");
    const lost = far.call("SandboxService/CreateSandbox", { request_id: "lost" });
    lost.catch(() => {});
    const together = create({ request_id: "lost" });
    await new Promise((resolve) => setTimeout(resolve, 60));
    link.cut();
    const outcome = await lost.then(
      () => "created",
      () => failureOf(lost),
    );
    // On a busy machine it may have been complete before the cut.
    if (outcome !== "created") expect(outcome).toMatchObject({ code: "UNAVAILABLE" });
    far.close();
    // The end of the first caller does not affect the other caller of the same request.
    const { sandbox } = await together;
    expect(sandbox.state).toBe("SANDBOX_STATE_RUNNING");
    await expectContainers(app.instance, 1);
  });
});

describe("commands", () => {
  test("Exec with the same id attaches to the process of the first call, from its beginning", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    const line = "echo started; echo x >>runs; read line; echo $line; exit 4";
    const more = { request_id: "exec", keep_stdin_open: true };
    const first = app.client.exec(id, line, more);
    await first.until("started");
    const second = app.client.exec(id, line, more);
    await second.until("started");
    expect(await second.processId).toBe(await first.processId);

    const process_id = await first.processId;
    await app.client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("hello\n") });
    for (const execution of [first, second, app.client.exec(id, line, more)]) {
      const { stdout, exit } = await execution.result;
      expect(stdout.toString()).toBe("started\nhello\n");
      expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 4 });
    }
    expect(await app.client.output(id, "cat runs")).toBe("x\n");

    const other = await failureOf(app.client.exec(id, "echo other", more).result);
    expect(other).toMatchObject({ code: "ALREADY_EXISTS", reason: "REQUEST_ID_REUSED" });
  });

  test("the same Exec many times at once starts one process", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    const executions = Array.from({ length: 8 }, () =>
      app.client.exec(id, "echo once | tee -a runs", { request_id: "at-once" }),
    );
    const ids = new Set(await Promise.all(executions.map(({ processId }) => processId)));
    expect(ids.size).toBe(1);
    for (const { result } of executions) expect((await result).stdout.toString()).toBe("once\n");
    expect(await app.client.output(id, "cat runs")).toBe("once\n");
  });

  test("RunCommand gets the first call's result again", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    const run = () => app.client.run(id, "echo x >>runs; date +%N; exit 5", { request_id: "run" });
    const [first, together] = await Promise.all([run(), run()]);
    const later = await run();
    expect(first.exit_status.exit_code).toBe(5);
    expect(together).toEqual(first);
    expect(later).toEqual(first);
    expect(await app.client.output(id, "cat runs")).toBe("x\n");
  });
});

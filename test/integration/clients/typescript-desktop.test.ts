import { afterAll, beforeAll, expect, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { ServeProcess } from "../../support/program.ts";

let service: ServeProcess;

beforeAll(async () => {
  service = await ServeProcess.start([], { BERTH_ENGINE: "docker", BERTH_DESKTOP_IMAGE: DESKTOP_IMAGE });
});

afterAll(() => service?.stop());

test("shows a desktop: a screenshot as an attachment, and a view as a pair of web streams", async () => {
  await using berth = Berth.connect(service.address);
  await using worker = berth.worker();
  await worker.create("vm");
  const { attachments, data } = await worker.execute("vm:screenshot");
  expect(attachments).toMatchObject([{ mediaType: "image/png" }]);
  expect(
    Buffer.from(attachments[0]?.content ?? [])
      .subarray(1, 4)
      .toString(),
  ).toBe("PNG");
  expect(data).toBeTypeOf("object");

  const view = await worker.view("vm");
  expect(view).toMatchObject({ protocol: "rfb", readOnly: false });
  const [reader, writer] = [view.readable.getReader(), view.writable.getWriter()];
  const received: number[] = [];
  const receive = async (bytes: number): Promise<Buffer> => {
    while (received.length < bytes) received.push(...((await reader.read()).value ?? []));
    return Buffer.from(received.splice(0, bytes));
  };
  expect((await receive(12)).toString()).toBe("RFB 003.008\n");
  await writer.write(new TextEncoder().encode("RFB 003.008\n"));
  // One authentication method: none.
  expect([...(await receive(2))]).toEqual([1, 1]);
  await reader.cancel();
  await expect(writer.write(new Uint8Array([1]))).rejects.toThrow();
});

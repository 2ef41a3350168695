import { afterAll, beforeAll, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { MeasuredService } from "../../support/memory.ts";
import { openView } from "../../support/view.ts";
import { Worker } from "../../support/worker.ts";

const MIB = 1024 * 1024;
/** One picture of it has 33 MB. */
const SCREEN = [3840, 2160];
const MAX_GROWTH_BYTES = 12 * MIB;

let service: MeasuredService;
let client: Client;
beforeAll(async () => {
  service = await MeasuredService.start(["--desktop-image", DESKTOP_IMAGE]);
  client = new Client(service.process.address);
});
afterAll(async () => {
  client.close();
  await service.process.stop();
});

test("a reader that stops makes the viewer wait: the service buffers no picture, and no byte is lost", async () => {
  const worker = new Worker(client, "slow");
  const { failure } = await worker.create("vm", { screen_size: SCREEN });
  expect(failure).toBeNull();
  const { started, rfb } = await openView(client, worker.id);
  const animation =
    'i=0; while [ $i -lt 150 ]; do xsetroot -solid "#$(printf %06x $((i * 70001)))"; i=$((i + 1)); done; xsetroot -solid "#112233"';
  await worker.execute("vm:launch", { command: `sh -c '${animation}'` });
  const written = async (): Promise<number> => {
    const { process } = await client.call("ProcessService/GetProcess", { process_id: started.process_id });
    return Number(process.stdout_bytes);
  };
  await rfb.update(false);
  const before = await service.live();
  let most = 0;
  for (let round = 0; round < 5; round++) {
    await rfb.request(false);
    // It writes until nobody reads any more.
    let last = -1;
    await eventually(async () => {
      const [now, previous] = [await written(), last];
      last = now;
      return now === previous && now > rfb.received;
    });
    expect(last - rfb.received).toBeLessThan(MAX_GROWTH_BYTES);
    most = Math.max(most, (await service.live()) - before);
    await rfb.receive();
  }
  console.log(`a stalled view of ${SCREEN.join("x")}: ${(most / MIB).toFixed(1)} MiB more in the service`);
  expect(most).toBeLessThan(MAX_GROWTH_BYTES);
  await rfb.until(() => rfb.pixel(10, 2100) === 0x112233, 30_000);
  rfb.close();
});

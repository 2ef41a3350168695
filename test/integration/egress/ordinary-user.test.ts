import { afterAll, beforeAll, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { OrdinaryService } from "../../support/ordinary-user.ts";

const FETCH = `
import sys, urllib.request, urllib.error
try: urllib.request.urlopen(sys.argv[1], timeout=30)
except urllib.error.HTTPError as error: print(error.code, error.read().decode())
`;

let service: OrdinaryService;
let client: Client;

beforeAll(async () => {
  service = await OrdinaryService.start();
  client = new Client(service.address);
});
afterAll(async () => {
  client?.close();
  await service?.stop();
});

test("a service that is not root gives its sandboxes domains too", async () => {
  const { sandbox_id: id } = await client.createSandbox({ egress_domains: ["allowed.example"] });
  const { stdout } = await client.run(id, ["python3", "-c", FETCH, "http://other.example/"]);
  expect(stdout.toString()).toBe("403 other.example:80 is not among the egress_domains of this sandbox.\n\n");
  expect(await client.output(id, "tail -n +3 /proc/net/dev | cut -d: -f1")).toMatch(/^\s*lo\s*$/);
});

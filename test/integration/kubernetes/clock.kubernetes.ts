import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import { KubernetesEngine } from "../../../src/engine/kubernetes/engine.ts";
import { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { kubectl } from "../../support/kubernetes.ts";
import { MAIN, ServeProcess } from "../../support/program.ts";
import { newDataDir, newInstance } from "../../support/settings.ts";
import { failure, silent } from "../engine/docker/support.ts";

const DIR = newDataDir();
const HOUR_MS = 3_600_000;
const LIFETIME_SECONDS = 4;
const ENV = { BERTH_ENGINE: "kubernetes", BERTH_NETWORK_POLICY: "open" };

/** A module that sets a program's clock off. */
function clockOffBy(ms: number): string {
  const file = path.join(DIR, `clock-${ms}.mjs`);
  const text = `
    const { now } = Date;
    globalThis.Date = class extends Date {
      constructor(...args) {
        if (args.length === 0) super(now() + ${ms});
        else super(...args);
      }
      static now() {
        return now() + ${ms};
      }
    };
  `;
  writeFileSync(file, text);
  return file;
}

describe("a service whose clock is off", () => {
  const running: ServeProcess[] = [];
  afterAll(async () => {
    for (const service of running) await service.dispose();
  });

  test.each([
    ["an hour behind", -HOUR_MS],
    ["an hour ahead", HOUR_MS],
  ])("by %s owns its instance, and its deadlines keep their length", async (_, ms) => {
    const entry = ["--import", clockOffBy(ms), MAIN];
    const service = await ServeProcess.start([], ENV, { entry });
    running.push(service);
    const client = new Client(service.address);
    const ready = await fetch(`http://${service.address}/readyz`);
    expect(ready.status).toBe(200);

    const { sandbox_id: id, create_time: made } = await client.createSandbox({});
    // The clock really is off.
    expect(Math.abs(Number(made?.seconds) * 1000 - (Date.now() + ms))).toBeLessThan(HOUR_MS / 2);
    expect((await client.run(id, "exit 3")).exit_status).toMatchObject({ exit_code: 3 });
    const began = performance.now();
    const slow = await client.run(id, "sleep 60", { timeout: { seconds: 2 } });
    expect(slow.exit_status).toMatchObject({ cause: "EXIT_CAUSE_TIMED_OUT" });
    expect(performance.now() - began).toBeGreaterThan(2_000);
    await client.deleteSandbox(id);

    const asked = performance.now();
    const { sandbox_id: brief } = await client.createSandbox({ max_lifetime: { seconds: LIFETIME_SECONDS } });
    const { termination } = await eventually(
      async () => {
        const sandbox = await client.getSandbox(brief);
        return sandbox.state === "SANDBOX_STATE_TERMINATED" && sandbox;
      },
      { timeoutMs: 60_000 },
    );
    expect(termination?.cause).toBe("TERMINATION_CAUSE_MAX_LIFETIME");
    expect(performance.now() - asked).toBeGreaterThan(LIFETIME_SECONDS * 1000);
    client.close();
    expect((await service.stop()).exitCode).toBe(0);
  });
});

test.each([
  ["has expired", "CERT_HAS_EXPIRED", "20200101000000Z", "20200102000000Z"],
  ["is not valid yet", "CERT_NOT_YET_VALID", "20990101000000Z", "20990102000000Z"],
])(
  "an API server whose certificate %s by the service's clock is refused, and the error names the clock",
  async (_, code, from, to) => {
    const files = Object.fromEntries(
      ["ca.key", "ca.crt", "key", "request", "crt"].map((name) => [name, path.join(DIR, `${code}-${name}`)]),
    ) as Record<string, string>;
    const openssl = (...args: string[]) => promisify(execFile)("openssl", args);
    const key = ["-newkey", "rsa:2048", "-nodes"];
    const authority = [...key, "-keyout", files["ca.key"] ?? "", "-subj", "/CN=authority"];
    await openssl("req", "-x509", ...authority, "-out", files["ca.crt"] ?? "");
    const server = [...key, "-keyout", files.key ?? "", "-subj", "/CN=server"];
    await openssl("req", "-new", ...server, "-out", files.request ?? "");
    const [index, serial, config] = ["index", "serial", "conf"].map((name) =>
      path.join(DIR, `${code}-${name}`),
    );
    writeFileSync(index ?? "", "");
    writeFileSync(serial ?? "", "01\n");
    const parts = [
      "[ca]",
      "default_ca=own",
      "[own]",
      `database=${index}`,
      `new_certs_dir=${DIR}`,
      `serial=${serial}`,
    ];
    const policy = [
      "policy=any",
      "default_md=sha256",
      "x509_extensions=names",
      "[any]",
      "commonName=supplied",
    ];
    const names = ["[names]", "subjectAltName=IP:127.0.0.1"];
    writeFileSync(config ?? "", [...parts, ...policy, ...names, ""].join("\n"));
    const signer = [
      "-config",
      config ?? "",
      "-cert",
      files["ca.crt"] ?? "",
      "-keyfile",
      files["ca.key"] ?? "",
    ];
    const dates = ["-startdate", from, "-enddate", to];
    const request = ["-in", files.request ?? "", "-out", files.crt ?? "", "-notext"];
    await openssl("ca", "-batch", ...signer, ...dates, ...request);

    const api = createServer({ key: readFileSync(files.key ?? ""), cert: readFileSync(files.crt ?? "") });
    await new Promise<void>((resolve) => api.listen(0, "127.0.0.1", resolve));
    const address = `https://127.0.0.1:${(api.address() as AddressInfo).port}`;
    const view = await kubectl(["config", "view", "--raw", "--output=json"], { as: "berth" });
    const kubeconfig = JSON.parse(view) as { clusters: { cluster: Record<string, string> }[] };
    for (const one of kubeconfig.clusters) {
      const authorities = readFileSync(files["ca.crt"] ?? "").toString("base64");
      one.cluster = { server: address, "certificate-authority-data": authorities };
    }
    const file = path.join(DIR, `${code}-kubeconfig`);
    writeFileSync(file, JSON.stringify(kubeconfig));
    const options = {
      instance: newInstance(),
      logger: silent,
      networkPolicy: "open",
      kubeconfig: file,
    } as const;
    const engine = await KubernetesEngine.open(options);
    const { message } = await failure(engine.info(), "ENGINE_UNAVAILABLE");
    expect(message).toContain(`not valid at this time (${code}). Check the service's clock`);
    await engine.close();
    api.close();
  },
);

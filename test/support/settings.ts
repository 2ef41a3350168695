import { randomInt } from "node:crypto";
import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomBase32 } from "../../src/base/ids.ts";
import type { AppSettings } from "../../src/config/settings.ts";
import { SANDBOX_DEFAULTS } from "../../src/sandboxes/spec.ts";
import { DESKTOP_IMAGE, TEST_IMAGE } from "./images.ts";

const MIB = 1024 * 1024;

/** Settings of a service in a test. The defaults of sandboxes may be partial. */
export type TestSettings = Partial<Omit<AppSettings, "defaults">> & {
  readonly defaults?: Partial<AppSettings["defaults"]>;
};

/** The default settings of a service, on any free port, with its own instance. */
export function testSettings(changes: TestSettings = {}): AppSettings & { readonly instance: string } {
  return {
    listen: "127.0.0.1:0",
    tls: undefined,
    tokens: undefined,
    secrets: undefined,
    allowHosts: [],
    corsOrigins: [],
    engine: process.env.BERTH_TEST_ENGINE === "kubernetes" ? "kubernetes" : "docker",
    dockerHost: undefined,
    rootfs: undefined,
    kubeconfig: process.env.KUBECONFIG,
    namespace: undefined,
    nodeSelector: {},
    tolerations: [],
    runtimeClass: undefined,
    imagePullSecrets: [],
    podTemplate: undefined,
    // The tests' cluster enforces no policies.
    networkPolicy: "open",
    workspaceVolumeBytes: 64 * MIB,
    storageClass: undefined,
    volumeAccessMode: "ReadWriteOnce",
    volumeClones: false,
    egressCidrs: [],
    denyCidrs: [],
    egressDns: [],
    dockerRequired: false,
    workspacesRoot: undefined,
    sharedRoot: undefined,
    workspaceQuotaBytes: undefined,
    sharedQuotaBytes: undefined,
    allowHostPaths: [],
    allowRuntimes: {},
    egressCredentials: undefined,
    desktopImage: DESKTOP_IMAGE,
    tenantQuota: {},
    maxSandboxes: 100,
    maxProcessesPerSandbox: 256,
    cleanupIntervalMs: 300_000,
    deleteGraceMs: 5_000,
    sessionTtlMs: 300_000,
    auditLog: undefined,
    auditReads: false,
    auditFileBytes: 64 * MIB,
    auditFiles: 10,
    stopTimeoutMs: 30_000,
    leaveSandboxes: false,
    warmPools: [],
    warmSessions: [],
    dataDir: changes.dataDir ?? newDataDir(),
    transcriptWindowBytes: 64 * MIB,
    transcriptQuotaBytes: 4096 * MIB,
    transcriptOwnerQuotaBytes: 2048 * MIB,
    answerQuotaBytes: 1024 * MIB,
    answerOwnerQuotaBytes: 512 * MIB,
    runOwnerQuotaBytes: 512 * MIB,
    ...changes,
    instance: changes.instance ?? newInstance(),
    defaults: { ...SANDBOX_DEFAULTS, image: TEST_IMAGE, ...changes.defaults },
  };
}

/** An instance that the end of the test run finds: see global-setup.ts. */
export function newInstance(): string {
  return `${instancePrefix()}${randomBase32(8)}`;
}

/**
 * A loopback address for something that listens, stops, and listens at the same port again: at 127.0.0.1, any other
 * program may have been given that port meanwhile.
 */
export function ownLoopback(): string {
  return `127.${Array.from({ length: 3 }, () => randomInt(1, 255)).join(".")}`;
}

/** A directory for one service, which the end of the test run removes. */
export function newDataDir(): string {
  mkdirSync(dataDirs(), { recursive: true });
  return mkdtempSync(path.join(dataDirs(), "data-"));
}

/** The directory with the data directories of this test run. */
export function dataDirs(): string {
  return path.join(tmpdir(), `berth-${instancePrefix()}data`);
}

/** A folder that looks like its package to the built program. Created by global-setup.ts. */
export function packageDir(): string {
  return path.join(dataDirs(), "package");
}

/** The prefix of this test run's instances. */
export function instancePrefix(): string {
  return `test-${process.env.BERTH_TEST_RUN ?? "alone"}-`;
}

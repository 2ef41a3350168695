import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readTar } from "../../../src/files/tar/tar-reader.ts";
import { Store } from "../../../src/store.ts";
import { startTestApp, type TestApp, useApp } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { berthKubeconfig, kubectl, NAMESPACE, podOf } from "../../support/kubernetes.ts";
import { ServeProcess } from "../../support/program.ts";
import { newInstance } from "../../support/settings.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";
import { failure, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const CALL_MS = 120_000;
const instances: string[] = [];

/** The instance of a service. Its claims are removed after the last test. */
function ownInstance(): string {
  const instance = newInstance();
  instances.push(instance);
  return instance;
}

afterAll(async () => {
  for (const instance of instances) {
    const selector = `--selector=berth.dev/instance=${instance}`;
    await kubectl(["delete", "pods,pvc", `--namespace=${NAMESPACE}`, selector, "--wait=false"]);
  }
});

interface Claim {
  readonly metadata: { readonly name: string; readonly annotations: Record<string, string> };
  readonly spec: { readonly dataSource?: { readonly kind: string; readonly name: string } };
  readonly status: { readonly phase: string };
}

async function claimsOf(instance: string): Promise<Claim[]> {
  const selector = `--selector=berth.dev/instance=${instance}`;
  const found = await kubectl(["get", "pvc", `--namespace=${NAMESPACE}`, selector, "--output=json"]);
  return (JSON.parse(found) as { items: Claim[] }).items;
}

/** Creates some of everything, as root in the working directory. */
const MAKE_ALL = `set -e
mkdir -p dir/deeper closed; printf content >dir/file; chmod 640 dir/file
ln dir/file hard; ln -s /etc/passwd absolute; ln -s gone dangling
printf x >suid; chmod 4755 suid; printf x >"$(printf 'latin-\\351\\377')"
printf y >"$(printf 'new\\nline')"; mkdir "$(printf 'd\\200')"; printf z >"$(printf 'd\\200')/in"
truncate -s 40M sparse; printf middle | dd of=sparse bs=1 seek=20000000 conv=notrunc status=none
head -c 3000000 /dev/urandom >random; touch -d @1500000000 dir/file; chmod 500 closed`;
/** Prints all of it, in lines that differ if anything does. */
const TELL_ALL = `find . -printf '%P|%y|%l|%n\\n' | sort | od -An -c | sha256sum
find . -type f -printf '%P|%s|' -exec sha256sum {} ';' | sort | sha256sum
find . -mindepth 1 ! -name suid -printf '%P|%m\\n' | sort | sha256sum
stat -c '%a %Y' dir/file suid | tr '\\n' ' '; stat -c %a closed; cat hard; du -k sparse | cut -f1`;

describe("workspaces on Kubernetes", () => {
  const service = useApp({ engine: "kubernetes", instance: ownInstance() });
  const workspaces = new WorkspaceClient(() => service.client);

  test(
    "are claims: files written by one sandbox are read by the next, whoever its user is",
    async () => {
      const made = await workspaces.create("kept");
      const [claim] = await claimsOf(service.instance);
      expect(made).toMatchObject({
        path: `${NAMESPACE}/${claim?.metadata.name}`,
        quota_bytes: 64 * 1024 * 1024,
        quota_enforcement: "QUOTA_ENFORCEMENT_WATCHED",
        has_shared: false,
      });
      expect(claim?.metadata.annotations).toMatchObject({
        "berth.dev/owner": "default",
        "berth.dev/workspace": "kept",
      });
      expect((await workspaces.create("kept")).path).toBe(made.path);

      const first = await workspaces.ensure("kept");
      expect(first.reused).toBe(false);
      const id = first.workspace.sandbox_id;
      expect(await service.client.output(id, "pwd; echo one >file; ls -A; stat -c %a .")).toBe(
        "/workspace\nfile\n777\n",
      );
      expect(await service.client.output(id, "[ -e /shared ] || echo none")).toBe("none\n");
      expect((await workspaces.ensure("kept")).reused).toBe(true);

      // Also another sandbox of another user, and a read-only one.
      const mounts = [{ workspace_id: "kept", target: "/mnt/w" }];
      const other = await service.client.createSandbox({ user: "12345:12345", mounts });
      expect(
        await service.client.output(other.sandbox_id, "cat /mnt/w/file; echo two >/mnt/w/two; id -u"),
      ).toBe("one\n12345\n");
      const reader = await service.client.createSandbox({
        user: "nobody",
        mounts: [{ workspace_id: "kept", target: "/mnt/w", read_only: true }],
      });
      expect(
        await service.client.output(
          reader.sandbox_id,
          "cat /mnt/w/two; touch /mnt/w/no 2>/dev/null || echo kept",
        ),
      ).toBe("two\nkept\n");

      expect((await workspaces.stop("kept")).sandbox_id).toBe("");
      const again = await workspaces.ensure("kept");
      expect(again.sandbox).toMatchObject({ sandbox_id: id, generation: 2 });
      expect(await service.client.output(id, "cat file two")).toBe("one\ntwo\n");
      await Promise.all(
        [id, other.sandbox_id, reader.sandbox_id].map((name) => service.client.deleteSandbox(name)),
      );
    },
    CALL_MS,
  );

  test(
    "that no sandbox has mounted yet can be read, exported and measured: they are empty",
    async () => {
      await workspaces.create("fresh");
      const tar: string[] = [];
      for await (const item of readTar(Readable.from([await workspaces.export("fresh")])))
        tar.push(item.type);
      expect(tar).toEqual([]);
      expect((await workspaces.get("fresh", { measure_size: true })).size_bytes).toBe(0);
      await workspaces.create("unread");
      const mounts = [{ workspace_id: "unread", target: "/in", read_only: true }];
      const image = "berth/bash:latest";
      const { sandbox_id: id } = await service.client.createSandbox({ image, user: "nobody", mounts });
      expect(await service.client.output(id, "ls -A /in && echo read")).toBe("read\n");
      // No program of the sandbox's image has written to the volume for that.
      const { name } = await podOf(id);
      const images = "--output=jsonpath={.spec.initContainers[*].image} {.spec.containers[*].image}";
      expect(await kubectl(["get", "pod", name, `--namespace=${NAMESPACE}`, images])).toBe(
        `${TEST_IMAGE} ${image}`,
      );
      await service.client.deleteSandbox(id);
    },
    CALL_MS,
  );

  test(
    "are unchanged by an export and an import: modes, links, holes, names of any bytes",
    async () => {
      const id = await workspaces.sandbox("source", { user: "root" });
      await service.client.output(id, MAKE_ALL);
      const before = await service.client.output(id, TELL_ALL);
      // The sandbox runs meanwhile.
      const tar = await workspaces.export("source");
      const { workspace, entry_count: entries } = await workspaces.import("copy", tar);
      expect(entries).toBe(14);
      expect(workspace.size_bytes).toBeGreaterThan(3_000_000);
      expect(workspace.size_bytes).toBeLessThan(8_000_000);
      const copy = await workspaces.sandbox("copy", { user: "root" });
      const after = await service.client.output(copy, TELL_ALL);
      // The set-user-ID bit is dropped, as everywhere.
      expect(before).toContain("4755 ");
      expect(after).toBe(before.replace("4755 ", "755 "));
      await Promise.all([service.client.deleteSandbox(id), service.client.deleteSandbox(copy)]);
    },
    CALL_MS,
  );

  test(
    "accept an import next to their content, or in place of it, and hostile archives leave nothing",
    async () => {
      const id = await workspaces.sandbox("filled", { user: "12345:12345" });
      await service.client.output(id, "mkdir dir; echo old >dir/old; echo old >file; ln -s /tmp link");
      const tar = makeTar([
        { name: "dir/new", content: "new\n" },
        { name: "file", content: "new\n" },
      ]);
      await workspaces.import("filled", tar);
      expect(await service.client.output(id, "cat dir/old dir/new file; stat -c %u dir/new")).toBe(
        "old\nnew\nnew\n12345\n",
      );
      const through = makeTar([{ name: "link/planted", content: "x" }]);
      expect(await failureOf(workspaces.import("filled", through))).toMatchObject({
        reason: "FILE_KIND",
        metadata: { entry: "link" },
      });
      const outside = makeTar([
        { name: "good", content: "x" },
        { name: "../planted", content: "x" },
      ]);
      expect((await failureOf(workspaces.import("filled", outside))).reason).toBe("ARCHIVE_REJECTED");
      expect((await failureOf(workspaces.import("filled", tar, { replace: true }))).reason).toBe(
        "WORKSPACE_IN_USE",
      );
      expect(await service.client.output(id, "ls -A | tr '\\n' ' '; ls -A /tmp")).toBe("dir file link ");

      await workspaces.stop("filled");
      await workspaces.import("filled", tar, { replace: true });
      const next = await workspaces.sandbox("filled", { user: "12345:12345" });
      expect(
        await service.client.output(next, "find . -mindepth 1 | sort | tr '\\n' ' '; stat -c '%a %u' ."),
      ).toBe("./dir ./dir/new ./file 777 12345\n");
      await service.client.deleteSandbox(next);
    },
    CALL_MS,
  );

  test(
    "are forked while a sandbox writes to them, with all their files",
    async () => {
      const id = await workspaces.sandbox("original", { user: "0" });
      await service.client.output(id, `${MAKE_ALL}; mkfifo pipe; chown 4711:4712 random`);
      const tell = `${TELL_ALL}; stat -c '%u %g %a' random .; stat -c %F pipe`;
      const told = await service.client.output(id, tell);
      const fork = await workspaces.fork("original", "fork", { request_id: "fork" });
      expect(fork).toMatchObject({ workspace_id: "fork", sandbox_id: "", trace_refs: [] });
      expect(fork.size_bytes).toBeGreaterThan(3_000_000);
      const other = await workspaces.sandbox("fork", { user: "0" });
      expect(await service.client.output(other, tell)).toBe(told);
      await service.client.output(other, "rm -r dir; echo more >>hard");
      expect(await service.client.output(id, tell)).toBe(told);
      expect(await workspaces.fork("original", "fork", { request_id: "fork" })).toEqual(fork);
      expect((await failureOf(workspaces.fork("original", "fork"))).reason).toBe("WORKSPACE_EXISTS");
      expect((await failureOf(workspaces.fork("unknown", "new"))).reason).toBe("WORKSPACE_NOT_FOUND");
      await workspaces.create("unused");
      await workspaces.fork("unused", "of unused");
      const third = await workspaces.sandbox("of unused", { user: "nobody" });
      expect(await service.client.output(third, "ls -A; touch x; stat -c %a .")).toBe("777\n");

      // Nothing is left if the copy exceeds the size of a claim, or if the source is deleted meanwhile.
      await service.client.output(id, "head -c 70000000 /dev/zero >large");
      expect((await failureOf(workspaces.fork("original", "too large"))).reason).toBe("NO_SPACE");
      await service.client.output(id, "rm large; mkdir many; cd many; seq 20000 | xargs touch");
      const gone = failureOf(workspaces.fork("original", "of gone"));
      const selector = `--selector=berth.dev/instance=${service.instance},berth.dev/role=volume`;
      await eventually(
        async () => {
          const list = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=json"]);
          return /"mountPath":\s*"\/other-volume"/.test(list);
        },
        { timeoutMs: 60_000 },
      );
      await workspaces.cleanup("original", { force: true });
      expect((await gone).reason).toBe("WORKSPACE_NOT_FOUND");
      const claims = await claimsOf(service.instance);
      const left = claims.map(({ metadata }) => metadata.annotations["berth.dev/workspace"]);
      for (const name of ["original", "too large", "of gone", "new"]) expect(left).not.toContain(name);
      for (const name of ["fork", "unused", "of unused"]) await workspaces.cleanup(name, { force: true });
    },
    CALL_MS,
  );

  test(
    "are compared while a sandbox writes to them, each read in a pod of its own",
    async () => {
      const id = await workspaces.sandbox("base", { user: "0" });
      await service.client.output(id, `${MAKE_ALL}; mkfifo pipe; chown 4711:4712 random`);
      await workspaces.fork("base", "changed");
      expect((await workspaces.diff("base", "changed")).changes).toEqual([]);
      const other = await workspaces.sandbox("changed", { user: "0" });
      await service.client.output(
        other,
        `touch -r random /tmp/time; printf x | dd of=random bs=1 seek=2999999 conv=notrunc status=none; printf y | dd of=random bs=1 seek=5 conv=notrunc status=none
         touch -r /tmp/time random; fallocate -l 40M sparse; rm hard; mkdir new; echo x >new/file
         chmod 600 suid; chown 1:2 dir; ln -sf /elsewhere absolute; rm pipe; mkdir pipe`,
      );
      const { changes, summary } = await workspaces.diff("base", "changed");
      const lines = changes.map(({ type, path, differences }) =>
        [type, ...differences]
          .map((word) => word.replace(/^WORKSPACE_[A-Z]+_(TYPE_)?/, ""))
          .join(" ")
          .concat(` ${path}`),
      );
      expect(lines).toEqual([
        "MODIFIED LINK_TARGET absolute",
        "MODIFIED OWNER dir",
        "REMOVED hard",
        "ADDED new",
        "ADDED new/file",
        "MODIFIED KIND pipe",
        "MODIFIED CONTENT random",
        "MODIFIED MODE suid",
      ]);
      expect(summary).toMatchObject({ added_bytes: 2, removed_bytes: 7, modified_bytes: 3_000_000 });
      // A workspace that no sandbox has had is empty.
      await workspaces.create("blank");
      expect((await workspaces.diff("blank", "changed")).summary).toMatchObject({ removed_count: 0 });
      expect((await failureOf(workspaces.diff("blank", "unknown"))).reason).toBe("WORKSPACE_NOT_FOUND");
      await service.client.output(id, "mkdir many; cd many; seq 20000 | xargs touch");
      const request = { base_workspace_id: "blank", workspace_id: "base" };
      const gone = failureOf(
        (async () => {
          let isFirst = true;
          for await (const _ of service.client.stream("WorkspaceService/DiffWorkspace", request)) {
            if (isFirst) await workspaces.cleanup("base", { force: true });
            isFirst = false;
          }
        })(),
      );
      expect(await gone).toMatchObject({ reason: "WORKSPACE_NOT_FOUND", metadata: { workspace_id: "base" } });
      for (const name of ["changed", "blank"]) await workspaces.cleanup(name, { force: true });
    },
    CALL_MS,
  );

  test(
    "are cleaned up only without references; with force the claim is deleted, after its sandboxes",
    async () => {
      await workspaces.addRef("doomed", "trace");
      const id = await workspaces.sandbox("doomed");
      const { path } = await workspaces.get("doomed");
      expect(await failureOf(workspaces.cleanup("doomed"))).toMatchObject({
        reason: "WORKSPACE_IN_USE",
        metadata: { ref_count: "1" },
      });
      expect((await workspaces.cleanup("doomed", { force: true })).cleared_ref_count).toBe(1);
      expect((await service.client.getSandbox(id)).state).toBe("SANDBOX_STATE_TERMINATED");
      const names = (await claimsOf(service.instance)).map(({ metadata }) => `${NAMESPACE}/${metadata.name}`);
      expect(names).not.toContain(path);
      // A new one with the same id has none of the first one's files.
      const other = await workspaces.sandbox("doomed");
      expect(await service.client.output(other, "ls -A")).toBe("");
      await workspaces.cleanup("doomed", { force: true });
    },
    CALL_MS,
  );

  test(
    "whose claim was deleted are broken, and can be cleaned up and created again",
    async () => {
      const { path } = await workspaces.create("lost");
      await kubectl(["delete", "pvc", path.split("/")[1] ?? "", `--namespace=${NAMESPACE}`]);
      const broken = { reason: "WORKSPACE_BROKEN", message: expect.stringContaining("its claim is gone") };
      expect(await failureOf(workspaces.get("lost"))).toMatchObject(broken);
      expect(await failureOf(workspaces.ensure("lost"))).toMatchObject(broken);
      expect(await failureOf(workspaces.export("lost"))).toMatchObject(broken);
      const { broken: listed } = await workspaces.list();
      expect(listed).toMatchObject([{ workspace_id: "lost", path, message: broken.message }]);
      await workspaces.cleanup("lost", { force: true });
      expect((await workspaces.create("lost")).path).toBe(path);
    },
    CALL_MS,
  );

  test(
    "are processed in pods without rights, a network or a sandbox's code, which remove themselves",
    async () => {
      const sandboxes = async () =>
        (await service.client.call("SandboxService/ListSandboxes", {})).sandboxes.map(
          ({ sandbox_id: id }) => id,
        );
      await workspaces.create("quiet");
      const before = await sandboxes();
      const measuring = workspaces.get("quiet", { measure_size: true });
      const selector = `--selector=berth.dev/instance=${service.instance},berth.dev/role=volume`;
      const pod = await eventually(
        async () => {
          const list = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=json"]);
          const [found] = (
            JSON.parse(list) as { items: { spec: Record<string, unknown>; metadata: object }[] }
          ).items;
          return found;
        },
        { timeoutMs: 30_000 },
      );
      expect(pod?.spec).toMatchObject({
        automountServiceAccountToken: false,
        containers: [{ image: TEST_IMAGE, securityContext: { allowPrivilegeEscalation: false } }],
      });
      expect(pod?.metadata).toMatchObject({ labels: { "berth.dev/network": "none" } });
      await measuring;
      expect(await sandboxes()).toEqual(before);
      await eventually(
        async () => {
          const left = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=name"]);
          return left === "";
        },
        { timeoutMs: 60_000 },
      );
    },
    CALL_MS,
  );

  test("refuse directories of the service's machine, and say what to use", async () => {
    const error = await failureOf(
      service.client.createSandbox({ mounts: [{ host_path: "/srv", target: "/srv" }] }),
    );
    expect(error.reason).toBe("UNSUPPORTED");
    expect(error.message).toContain("nodes do not have them. Use a workspace.");
  });
});

describe("forks by clones", () => {
  /** A service with clones for workspaces. Fails if it logged a warning. */
  const cloning = async (more: object = {}): Promise<TestApp & { readonly workspaces: WorkspaceClient }> => {
    const service = await startTestApp({
      ...{ engine: "kubernetes", instance: ownInstance(), volumeClones: true, ...more },
    });
    return Object.assign(service, { workspaces: new WorkspaceClient(() => service.client) });
  };
  const sourceOf = async (instance: string, id: string): Promise<string | undefined> => {
    const claims = await claimsOf(instance);
    const named = (name: string | undefined) =>
      claims.find(({ metadata }) => metadata.name === name)?.metadata.annotations["berth.dev/workspace"];
    const fork = claims.find(({ metadata }) => metadata.annotations["berth.dev/workspace"] === id);
    return named(fork?.spec.dataSource?.name);
  };
  const isCopied = ({ log }: TestApp): boolean =>
    log.lines.some(({ message }) => message.includes("should be a clone"));

  test(
    "hold the same as copies, for a source that is in use, unused or replaced, and no more than fits",
    async () => {
      const service = await cloning();
      const { client, workspaces, instance } = service;
      try {
        const id = await workspaces.sandbox("original", { user: "0" });
        const socket = `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`;
        await client.output(id, `${MAKE_ALL}; mkfifo pipe; chown 4711:4712 random; ${socket}`);
        const tell = `${TELL_ALL}; stat -c '%u %g %a' random .; stat -c %F pipe`;
        const fork = await workspaces.fork("original", "fork", { request_id: "fork" });
        expect(fork.size_bytes).toBeGreaterThan(3_000_000);
        expect(await sourceOf(instance, "fork")).toBe("original");
        await client.output(id, "rm socket");
        const told = await client.output(id, tell);
        const other = await workspaces.sandbox("fork", { user: "0" });
        expect(await client.output(other, tell)).toBe(told);
        expect((await workspaces.diff("original", "fork")).changes).toEqual([]);
        await client.output(other, "rm -r dir; echo more >>hard");
        expect(await client.output(id, tell)).toBe(told);
        expect(await workspaces.fork("original", "fork", { request_id: "fork" })).toEqual(fork);

        await workspaces.create("unused");
        await workspaces.fork("unused", "of unused");
        const third = await workspaces.sandbox("of unused", { user: "nobody" });
        expect(await client.output(third, "ls -A; touch x; stat -c %a .")).toBe("777\n");
        await workspaces.stop("fork");
        await workspaces.import("fork", makeTar([{ name: "only", content: "this" }]), { replace: true });
        await workspaces.fork("fork", "of replaced");
        const fourth = await workspaces.sandbox("of replaced", { user: "nobody" });
        expect(await client.output(fourth, "ls -A; cat only")).toBe("only\nthis");

        await client.output(id, "head -c 70000000 /dev/zero >large");
        expect((await failureOf(workspaces.fork("original", "too large"))).reason).toBe("NO_SPACE");
        const left = (await claimsOf(instance)).map(
          ({ metadata }) => metadata.annotations["berth.dev/workspace"],
        );
        expect(left.sort()).toEqual(["fork", "of replaced", "of unused", "original", "unused"]);
        expect(isCopied(service)).toBe(false);
      } finally {
        await service.stop();
      }
    },
    CALL_MS,
  );

  test(
    "are copied if a clone turns out to be empty, and the log says so",
    async () => {
      // Volumes that were created in advance are bound unchanged, even if a claim wants to be a clone.
      const storageClass = `static-${process.pid}`;
      const directory = await mkdtemp(path.join(tmpdir(), "berth-static-"));
      const volumes = [1, 2].map((number) => `${storageClass}-${number}`);
      const items = volumes.map((name) => ({
        apiVersion: "v1",
        kind: "PersistentVolume",
        metadata: { name },
        spec: {
          capacity: { storage: "1Gi" },
          accessModes: ["ReadWriteOnce"],
          storageClassName: storageClass,
          persistentVolumeReclaimPolicy: "Retain",
          hostPath: { path: path.join(directory, name), type: "DirectoryOrCreate" },
        },
      }));
      await kubectl(["create", "--filename=-"], {
        input: JSON.stringify({ apiVersion: "v1", kind: "List", items }),
      });
      const service = await cloning({ storageClass });
      try {
        const { client, workspaces, instance } = service;
        const id = await workspaces.sandbox("original", { user: "0" });
        await client.output(id, "echo content >file");
        await workspaces.fork("original", "fork");
        expect(await sourceOf(instance, "fork")).toBe("original");
        const other = await workspaces.sandbox("fork", { user: "0" });
        expect(await client.output(other, "ls -A; cat file")).toBe("file\ncontent\n");
        expect(isCopied(service)).toBe(true);
        for (const name of ["original", "fork"]) await workspaces.cleanup(name, { force: true });
      } finally {
        await service.stop();
        await kubectl(["delete", "persistentvolume", ...volumes, "--wait=false"]);
        await rm(directory, { recursive: true, force: true });
      }
    },
    CALL_MS,
  );
});

describe("shared data", () => {
  test(
    "is a claim of its own if any number of sandboxes may mount one",
    async () => {
      const service = await startTestApp({
        ...{ engine: "kubernetes", instance: ownInstance(), volumeAccessMode: "ReadWriteMany" },
      });
      try {
        const workspaces = new WorkspaceClient(() => service.client);
        const [one, two] = await Promise.all([workspaces.sandbox("one"), workspaces.sandbox("two")]);
        expect((await workspaces.get("one")).has_shared).toBe(true);
        await service.client.output(one, "echo both >/shared/note");
        expect(await service.client.output(two, "cat /shared/note; ls -A /workspace")).toBe("both\n");
        const claims = await claimsOf(service.instance);
        expect(claims.map(({ metadata }) => metadata.annotations["berth.dev/workspace"]).sort()).toEqual([
          "",
          "one",
          "two",
        ]);
        await Promise.all([one, two].map((id) => service.client.deleteSandbox(id)));
      } finally {
        await service.stop();
      }
    },
    CALL_MS,
  );

  test(
    "a claim for a single pod is not accessed while a sandbox uses it, and says so",
    async () => {
      const service = await startTestApp({
        ...{ engine: "kubernetes", instance: ownInstance(), volumeAccessMode: "ReadWriteOncePod" },
      });
      try {
        const workspaces = new WorkspaceClient(() => service.client);
        const id = await workspaces.sandbox("alone");
        const error = await failureOf(workspaces.export("alone"));
        expect(error).toMatchObject({ reason: "WORKSPACE_IN_USE" });
        expect(error.message).toContain("Stop the workspace's sandbox");
        await workspaces.create("free");
        expect(await failureOf(workspaces.diff("free", "alone"))).toMatchObject({
          reason: "WORKSPACE_IN_USE",
          metadata: { workspace_id: "alone" },
        });
        // A merge ends the pod in which it ran, and the measurement after it needs another one.
        for (const name of ["one", "two"])
          await workspaces.import("free", makeTar([{ name, content: name }]));
        expect(Number((await workspaces.get("free")).size_bytes)).toBeGreaterThan(0);
        await service.client.output(id, "echo in >file");
        await workspaces.stop("alone");
        expect((await workspaces.export("alone")).length).toBeGreaterThan(1024);
        // The export's pod frees the volume.
        expect(await service.client.output(await workspaces.sandbox("alone"), "cat file")).toBe("in\n");
        await workspaces.stop("alone");
      } finally {
        await service.stop();
      }
    },
    CALL_MS,
  );
});

describe("two tenants", () => {
  const tokens = new TokensFile();
  let service: TestApp;
  const clients: Client[] = [];

  beforeAll(async () => {
    const [one, two] = [await tokens.add("one"), await tokens.add("two")];
    service = await startTestApp({ engine: "kubernetes", instance: ownInstance(), tokens: tokens.path });
    clients.push(clientWith(service.app.address, one), clientWith(service.app.address, two));
  });
  afterAll(async () => {
    for (const client of clients) client.close();
    await service.stop();
  });

  test(
    "have workspaces of the same id, and neither sees the other's",
    async () => {
      const [one, two] = clients.map((client) => new WorkspaceClient(() => client));
      if (one === undefined || two === undefined) throw new Error("there are two");
      const [first, second] = [await one.create("same"), await two.create("same")];
      expect(first.path).not.toBe(second.path);
      await one.import("same", makeTar([{ name: "secret", content: "x" }]));
      const id = await two.sandbox("same");
      expect(await (clients[1] as Client).output(id, "ls -A")).toBe("");
      await (clients[1] as Client).deleteSandbox(id);
      await one.create("only");
      expect((await two.list()).workspaces.map(({ workspace_id: name }) => name)).toEqual(["same"]);
      expect((await two.list()).broken).toEqual([]);
      expect((await failureOf(two.cleanup("only", { force: true }))).reason).toBe("WORKSPACE_NOT_FOUND");
    },
    CALL_MS,
  );
});

describe("a service that was killed between two writes", () => {
  test(
    "finishes interrupted work, and reports a claim without a workspace and leaves it alone",
    async () => {
      const options = [
        "--engine",
        "kubernetes",
        "--network-policy",
        "open",
        "--kubeconfig",
        berthKubeconfig(),
      ];
      const env = { BERTH_WORKSPACE_VOLUME_SIZE: "32MiB" };
      let service = await ServeProcess.start(options, env);
      instances.push(service.instance);
      let client = new Client(service.address);
      const workspaces = new WorkspaceClient(() => client);
      const paths = new Map<string, string>();
      for (const id of ["with-claim", "stray", "deleting", "forking"])
        paths.set(id, (await workspaces.create(id)).path);
      client.close();
      await service.stop("SIGKILL");

      const store = Store.open(service.dataDir);
      const name = (workspaceId: string) => ({ owner: "default", workspaceId });
      // As a kill leaves them: before the claim, after the claim and before its row, during a deletion and during a
      // fork.
      store.workspaces.insert(name("without-claim"), "CREATING", 0);
      store.workspaces.remove(name("with-claim"));
      store.workspaces.insert(name("with-claim"), "CREATING", 0);
      store.workspaces.remove(name("stray"));
      store.workspaces.beginDeletion(name("deleting"), "", Date.now());
      store.workspaces.remove(name("forking"));
      store.workspaces.insertFork(name("forking"), 0, 0, () => {});
      store.close();

      service = await service.again(options, env);
      client = new Client(service.address);
      const found = await eventually(
        async () => {
          const list = await workspaces.list();
          return list.workspaces.length === 2 && list.broken.length === 1 ? list : undefined;
        },
        { timeoutMs: 30_000 },
      );
      expect(found?.workspaces.map(({ workspace_id: id }) => id)).toEqual(["with-claim", "without-claim"]);
      expect(found?.broken).toMatchObject([
        {
          workspace_id: "",
          path: paths.get("stray"),
          message: expect.stringContaining('the workspace "stray"'),
        },
      ]);
      const names = async (): Promise<string[]> =>
        (await claimsOf(service.instance)).map(({ metadata }) => `${NAMESPACE}/${metadata.name}`);
      // Rows in a deletion or a fork appear in no list: the claims show when both are over.
      for (const id of ["deleting", "forking"])
        await expect.poll(names, { timeout: 30_000 }).not.toContain(paths.get(id));
      expect(await names()).toContain(paths.get("stray"));
      // Adopting an unknown claim could give one owner another's files.
      expect((await failureOf(workspaces.create("stray"))).reason).toBe("WORKSPACE_BROKEN");
      client.close();
      await service.stop();
    },
    CALL_MS,
  );
});

describe("a claim that never binds", () => {
  const never = async (storageClass: string) => {
    const volumes = {
      sizeBytes: 2 ** 20,
      storageClass,
      accessMode: "ReadWriteOnce" as const,
      clones: false,
      image: TEST_IMAGE,
    };
    const { engine, instance } = await openEngine({ volumes, startTimeoutMs: 15_000 });
    instances.push(instance);
    const volume = `${instance}-claim`.slice(0, 60);
    await engine.volumes?.make({ name: volume, owner: "default", workspaceId: "w" });
    const mount = {
      kind: "volume",
      volume,
      directory: "t0",
      target: "/w",
      readOnly: false,
      giveToUser: true,
    };
    const failed = failure(engine.create(spec({ mounts: [mount as never] })), "SANDBOX_START_FAILED");
    const opened = failure(engine.volumes?.open(volume) ?? Promise.resolve(), "SANDBOX_START_FAILED");
    return { engine, messages: [(await failed).message, (await opened).message] };
  };

  test(
    "because its class is missing ends a create at its deadline with Kubernetes' message, and leaves no pod",
    async () => {
      const { engine, messages } = await never("nowhere");
      for (const message of messages) {
        expect(message).toContain("it was not ready within 15 s");
        expect(message).toMatch(
          /of the class nowhere\) is not bound: ProvisioningFailed: .*"nowhere" not found/,
        );
      }
      expect(await engine.list()).toEqual([]);
    },
    CALL_MS,
  );

  test(
    "because its provisioner is missing does the same",
    async () => {
      const name = `no-provisioner-${process.pid}`;
      const made = { apiVersion: "storage.k8s.io/v1", kind: "StorageClass", metadata: { name } };
      const input = JSON.stringify({
        ...made,
        provisioner: "berth.dev/nobody",
        volumeBindingMode: "Immediate",
      });
      await kubectl(["create", "--filename=-"], { input });
      try {
        const { messages } = await never(name);
        for (const message of messages) {
          expect(message).toMatch(/is not bound: ExternalProvisioning: .*"?berth.dev\/nobody/i);
        }
      } finally {
        await kubectl(["delete", "storageclass", name]);
      }
    },
    CALL_MS,
  );
});

test("a claim of another instance is neither found nor removed", async () => {
  const volumes = {
    sizeBytes: 2 ** 20,
    accessMode: "ReadWriteOnce" as const,
    clones: false,
    image: TEST_IMAGE,
  };
  const [one, two] = [await openEngine({ volumes }), await openEngine({ volumes })];
  instances.push(one.instance, two.instance);
  const volume = { name: `${one.instance}-own`.slice(0, 60), owner: "default", workspaceId: "w" };
  expect(await one.engine.volumes?.make(volume)).toBe(true);
  expect(await one.engine.volumes?.make(volume)).toBe(false);
  expect(await two.engine.volumes?.make(volume)).toBe(false);
  expect(await two.engine.volumes?.find(volume.name)).toBeUndefined();
  await two.engine.volumes?.remove(volume.name);
  expect(await two.engine.volumes?.list()).toEqual([]);
  expect(await one.engine.volumes?.list()).toEqual([{ ...volume, problem: undefined }]);
  await one.engine.volumes?.remove(volume.name);
  await one.engine.volumes?.remove(volume.name);
  expect(await one.engine.volumes?.list()).toEqual([]);
});

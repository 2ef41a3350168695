import type { Defect } from "./defect.ts";

const REFERENCES = "test/integration/workspaces/references.test.ts";
const SHARED_QUOTA = "test/integration/workspaces/shared-quota.test.ts";
const SHARED_IS_TOLD =
  "past its watched quota a shared directory is reported, and workspaces get no new sandbox";
const SANDBOXES = "test/integration/workspaces/sandboxes.test.ts";
const QUOTA = "test/unit/workspaces/quota.test.ts";
const MEASURING = "test/integration/workspaces/quota-measuring.test.ts";
const SHARED_KNOWN =
  "the sizes of shared directories are known right after a restart, and those without a quota do not count";
const DIFF = "test/integration/workspaces/diff.test.ts";
const LIMITS = "test/integration/workspaces/host/quota-limits.test.ts";
const IMPORTS = "test/integration/workspaces/imports.test.ts";

/** Those of the original WorkspaceManager, and those that Berth's own had. */
export const WORKSPACE_DEFECTS: readonly Defect[] = [
  {
    name: "a cleanup that is repeated after a crash deletes the workspace that was created since",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: "if (!isRetry && (deletion.answered || state !== undefined)) return undefined;",
        to: "if (state !== undefined || (!isRetry && deletion.answered)) return undefined;",
      },
    ],
    test: {
      file: "test/integration/workspaces/deletions.test.ts",
      title:
        "a cleanup that is repeated, because its answer was lost, does not delete what was created since",
    },
  },
  {
    name: "an import into the source of a fork removes the mark by which its clone is recognized",
    changes: [{ file: "src/workspaces/volumes/copy.ts", from: '"berth-clone-"', to: '".berth-clone-"' }],
    test: {
      file: "test/integration/workspaces/volumes.test.ts",
      title: "a clone is recognized although files were imported into the source before it was made",
    },
  },
  {
    name: "a merge keeps its volume from the measurement after it, where only a single pod can mount the volume",
    changes: [
      {
        file: "src/workspaces/volumes/import.ts",
        from: "        await discard();\n      },\n      replace:",
        to: "      },\n      replace:",
      },
    ],
    test: {
      file: "test/integration/workspaces/volumes.test.ts",
      title:
        "a merge frees its volume, which only a single pod may be able to mount, before the import is measured",
    },
  },
  {
    name: "an import that the end of the service interrupts leaves a workspace with a part of its files",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: 'if (known.state === "CREATING") await',
        to: 'if (known.state !== "DELETING") await',
      },
    ],
    test: {
      file: "test/integration/workspaces/imports.test.ts",
      title: "an import that the end of the service interrupts leaves no workspace, and no part of its files",
    },
  },
  {
    name: "what a failed import could not remove becomes the content of a new workspace",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: '(state === "IMPORTING" && !this.#importing.has(number))',
        to: "number < 0",
      },
    ],
    test: {
      file: IMPORTS,
      title: "what a failed import could not remove is removed before its workspace is created again",
    },
  },
  {
    name: "an import holds descriptors for any number of levels that it merges",
    changes: [
      {
        file: "src/workspaces/host/pinned.ts",
        from: "if (this.#depth === MAX_DEPTH) throw tooDeep();",
        to: "",
      },
    ],
    test: {
      file: "test/integration/workspaces/imports.test.ts",
      title: "an import merges 100 levels of directories; one level more is refused, and nothing is moved",
    },
  },
  {
    name: "a data directory that is a symbolic link has no workspaces",
    changes: [
      {
        file: "src/workspaces/parts.ts",
        from: 'root: realPlace(workspacesRoot ?? path.join(dataDir, "workspaces")),',
        to: 'root: workspacesRoot ?? path.join(dataDir, "workspaces"),',
      },
    ],
    test: {
      file: "test/integration/workspaces/roots.test.ts",
      title: "sandboxes mount workspaces of a data directory that is a symbolic link",
    },
  },
  {
    name: "a lack of descriptors makes tools run with all rights",
    changes: [
      {
        file: "src/workspaces/host/tools.ts",
        from: '        if (error !== undefined && !MISSING.has(codeOf(error) ?? "")) throw tooManyFiles(error) ?? error;\n',
        to: "        void [error, MISSING, codeOf, tooManyFiles];\n",
      },
    ],
    test: {
      file: "test/integration/workspaces/host/tools.test.ts",
      title: "a lack of descriptors never makes tools run with all rights",
    },
  },
  {
    name: "a tool that cannot be started for lack of descriptors is a defect of the service",
    changes: [
      {
        file: "src/workspaces/host/tools.ts",
        from: "      if (tool.pid === undefined) await ended;\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/workspaces/host/tools.test.ts",
      title: "a tool that %s says why it cannot be started, however few descriptors are left",
      row: "is run",
    },
  },
  {
    name: "after a restart, a remove wipes all persisted references",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "        store.removeRef(name, traceId, clock.wallMs(), () => progress.begin(traceId));",
        to: `      for (const ref of store.refs(name)) {
        if (ref === traceId || !this.added?.has(ref)) store.removeRef(name, ref, clock.wallMs());
      }`,
      },
      {
        file: "src/workspaces/manager.ts",
        from: "      store.addRef(",
        to: "      (this.added ??= new Set()).add(traceId);\n      store.addRef(",
      },
    ],
    test: { file: REFERENCES, title: "references are still there, and removing one leaves the others" },
  },
  {
    name: "a torn record is taken for empty and overwritten",
    changes: [
      {
        file: "src/store.ts",
        from: "      inspectFile(file);",
        to: `      try {
        inspectFile(file);
      } catch {
        process.getBuiltinModule("node:fs").rmSync(file);
      }`,
      },
    ],
    test: { file: "test/integration/state/store.test.ts", title: "a file that is not a database" },
  },
  {
    name: "a corrupt entry left by hand is taken over as a new workspace",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: "    if (known === undefined) await storage.assertFree(name);\n",
        to: "",
      },
    ],
    test: { file: REFERENCES, title: "is reported, left alone and never taken for a workspace" },
  },
  {
    name: "a fork of a workspace that is replaced meanwhile is a half of it",
    changes: [
      {
        file: "src/workspaces/host/copy.ts",
        from: "if ((await identityOf(from)) !== before) throw",
        to: "if (before === undefined) throw",
      },
    ],
    test: {
      file: "test/integration/workspaces/fork.test.ts",
      title: "a source that is deleted or replaced during the copy leaves no partial fork",
    },
  },
  {
    name: "what a tool says of files that vanish pushes out why it failed",
    changes: [
      { file: "src/base/last-lines.ts", from: "    if (this.#isNoise(this.#open)) return;\n", to: "" },
    ],
    test: {
      file: "test/unit/base/last-lines.test.ts",
      title: "noise does not push out other lines, and is not shown",
    },
  },
  {
    name: "what is read of a workspace that is replaced meanwhile is a half of it",
    changes: [
      {
        file: "src/workspaces/host/directories.ts",
        from: "if ((await identityOf(directory)) !== before) throw",
        to: "if (before === undefined) throw",
      },
    ],
    test: {
      file: "test/integration/workspaces/replaced.test.ts",
      title: "%s of a workspace that is deleted or replaced meanwhile gives no partial answer",
      row: "WorkspaceService/ExportWorkspace",
    },
  },
  {
    name: "a workspace that is being replaced is taken for broken",
    changes: [
      {
        file: "src/workspaces/host/directories.ts",
        from: "      this.#replacing.add(directory);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/workspaces/replacing.test.ts",
      title:
        "a workspace that is being replaced is in use, and never broken, although its directory is missing for a moment",
    },
  },
  {
    name: "a comparison trusts times of change",
    changes: [
      {
        file: "src/workspaces/compare.ts",
        from: "!(await isSameContent())",
        to: "(left.modifyTime.seconds !== right.modifyTime.seconds && !(await isSameContent()))",
      },
    ],
    test: { file: DIFF, title: "files of the same size and modification time are compared by content" },
  },
  {
    name: "a comparison follows links out of a workspace",
    changes: [
      {
        file: "src/files/tar/restate.ts",
        from: '["--sort=name", "--hard-dereference"]',
        to: '["--sort=name", "--hard-dereference", "--dereference"]',
      },
    ],
    test: {
      file: DIFF,
      title: "a directory that a sandbox swaps for a link never leads out of the workspace",
    },
  },
  {
    name: "a fork that a kill cut short goes on without the service",
    changes: [
      {
        file: "src/workspaces/host/tools.ts",
        from: 'const ENDS_WITH_US = ["--pdeathsig", "KILL"];',
        to: "const ENDS_WITH_US: string[] = [];",
      },
    ],
    test: {
      file: "test/integration/workspaces/crashes.test.ts",
      title: "a fork interrupted by a kill leaves nothing, nor a tool at work, and its retry completes it",
    },
  },
  {
    name: "removing a reference of an absent workspace creates it",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "      workspaces.find(name);\n      if (progress",
        to: "      await workspaces.make(name);\n      if (progress",
      },
    ],
    test: {
      file: REFERENCES,
      title: "that is unknown is NOT_FOUND, and only the creating calls create it",
    },
  },
  {
    name: "cleaning up an absent workspace creates it",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "      workspaces.find(name);\n      const refCount",
        to: "      await workspaces.make(name);\n      const refCount",
      },
    ],
    test: {
      file: REFERENCES,
      title: "that is unknown is NOT_FOUND, and only the creating calls create it",
    },
  },
  {
    name: "moving a trace leaves the old reference",
    changes: [
      {
        file: "src/state/schema.ts",
        from: "PRIMARY KEY (owner, trace_id)",
        to: "PRIMARY KEY (owner, trace_id, workspace_number)",
      },
      {
        file: "src/workspaces/store.ts",
        from: "ON CONFLICT (owner, trace_id) DO UPDATE SET workspace_number = excluded.workspace_number",
        to: "ON CONFLICT DO NOTHING",
      },
    ],
    test: { file: REFERENCES, title: "belong to one workspace: added to another, a trace leaves the first" },
  },
  {
    name: "the engine's calls for one workspace block all others",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: "this.#locks.run(workspaceKey(name), work)",
        to: 'this.#locks.run("all", work)',
      },
    ],
    test: {
      file: "test/integration/workspaces/locks.test.ts",
      title:
        "a workspace whose sandbox is slow to create or remove blocks no other workspace, and no call but its own",
    },
  },
  {
    name: "a stale sandbox id is reported as the workspace's",
    changes: [
      {
        file: "src/workspaces/sandboxes.ts",
        from: "return LIVE.has(view.state) ? view : undefined;",
        to: "return view;",
      },
    ],
    test: { file: SANDBOXES, title: "stop ends the sandbox and keeps directory and references" },
  },
  {
    name: "the container that was saved is taken to run for ever",
    changes: [
      {
        file: "src/workspaces/ensure.ts",
        from: "    return undefined;\n  }\n\n  async #create",
        to: "    return record.sandboxId === '' ? undefined : sandboxes.get(record);\n  }\n\n  async #create",
      },
    ],
    test: {
      file: SANDBOXES,
      title: "reuses the running sandbox, resumes a paused one and replaces one that ended",
    },
  },
  {
    name: "force leaves the containers that use the directory",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: "      await users.removeUsers(record, graceMs);\n",
        to: "",
      },
    ],
    test: { file: SANDBOXES, title: "removes every sandbox that uses it first, then the directory" },
  },
  {
    name: "force deletes the directory under a live container",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: `      await users.removeUsers(record, graceMs);
      await storage.discard(record);`,
        to: `      await storage.discard(record);
      await users.removeUsers(record, graceMs);`,
      },
    ],
    test: {
      file: "test/integration/workspaces/docker.test.ts",
      title: "a forced cleanup deletes nothing under a container that may be running, and can be retried",
    },
  },
  {
    name: "what keeps files from being deleted is hidden",
    changes: [
      {
        file: "src/workspaces/host/trees.ts",
        from: '    if (end.code !== 0) throw toolFailure("rm", end, "deleted");\n',
        to: "",
      },
    ],
    test: {
      file: "test/integration/workspaces/ordinary-user.test.ts",
      title: "files of another user, which it may neither read nor delete, are reported, and hide nothing",
    },
  },
  {
    name: "what a sandbox writes into its workspace forges its container id",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: '      sandboxId: users.current(record)?.sandboxId ?? "",',
        to: `      sandboxId: (() => {
        const { existsSync, readFileSync } = process.getBuiltinModule("node:fs");
        const meta = \`\${storage.pathOf(record)}/.gateway/meta.json\`;
        if (existsSync(meta)) return JSON.parse(readFileSync(meta, "utf8")).workspace_container_id;
        return users.current(record)?.sandboxId ?? "";
      })(),`,
      },
    ],
    test: {
      file: SANDBOXES,
      title: "files that a sandbox writes into its workspace are data: none of Berth's metadata is there",
    },
  },
  {
    name: "references are kept in memory, and on the disk a while later",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "      store.addRef(name, traceId, clock.wallMs(), () => progress.begin(previousWorkspaceId));",
        to: "      setTimeout(() => store.addRef(name, traceId, clock.wallMs()), 200);",
      },
    ],
    test: {
      file: "test/integration/workspaces/crashes.test.ts",
      title:
        "100 concurrent reference changes on 20 workspaces, with three kills in between, leave exact references",
    },
  },
  {
    name: "a service that is not root cannot read or delete what a sandbox closed to its own user",
    changes: [
      {
        file: "src/workspaces/host/tools.ts",
        from: "if (status === 0) return new Tools(start);",
        to: "if (status === 0 && !start.enters) return new Tools(start);",
      },
    ],
    test: {
      file: "test/integration/workspaces/ordinary-user.test.ts",
      title: "whatever a sandbox plants or closes to its own user is measured, exported and deleted",
    },
  },
  {
    name: "an import that was refused half way is a running call for ever",
    changes: [{ file: "src/server/http-message.ts", from: "    request.stream.destroy();\n", to: "" }],
    test: {
      file: "test/integration/workspaces/quota.test.ts",
      title: "an import that would exceed the quota is refused as it arrives, and leaves nothing",
    },
  },
  {
    name: "a workspace gets a sandbox though what it shares is past its quota",
    changes: [
      {
        file: "src/workspaces/ensure.ts",
        from: "    if (storage.sharing && mountsShared(spec)) await quota.assertRoom(sharedOf(record.owner), request);\n",
        to: "",
      },
    ],
    test: { file: SHARED_QUOTA, title: SHARED_IS_TOLD },
  },
  {
    name: "a shared directory past its quota is reported to sandboxes that do not mount it",
    changes: [
      {
        file: "src/workspaces/sandboxes.ts",
        from: "if (isShared(name)) return mountsShared(spec);",
        to: "if (isShared(name)) return true;",
      },
    ],
    test: { file: SHARED_QUOTA, title: SHARED_IS_TOLD },
  },
  {
    name: "a shared directory is listed as a workspace",
    changes: [
      {
        file: "src/workspaces/store.ts",
        from: "AND workspace_id > ? ORDER BY workspace_id LIMIT ?`",
        to: "AND workspace_id >= ? ORDER BY workspace_id LIMIT ?`",
      },
    ],
    test: {
      file: SHARED_QUOTA,
      title: "a shared directory is not a workspace: no call lists, names or mounts it",
    },
  },
  {
    name: "a shared directory that an earlier version made is not watched",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "for (const owner of store.owners()) mounts.recordShared(owner);",
        to: "for (const _ of []);",
      },
    ],
    test: {
      file: "test/integration/workspaces/quota-measuring.test.ts",
      title: "the watch finds a shared directory that grew, also one from an earlier version",
    },
  },
  {
    name: "a stop waits for a deletion of an earlier run, however long that takes",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "await within(Promise.all([this.#recovered, quota.stop(), sweep.stop()]), timeoutMs, clock);",
        to: "void [timeoutMs, clock]; await Promise.all([this.#recovered, quota.stop(), sweep.stop()]);",
      },
    ],
    test: {
      file: "test/unit/workspaces/stop.test.ts",
      title: "a stop waits only up to its limit for a deletion that an earlier run left",
    },
  },
  {
    name: "a page of workspaces has as many references as there are, and keeps other callers waiting for seconds",
    changes: [
      {
        file: "src/workspaces/store.ts",
        from: " || (records.length > 0 && bytes > MAX_SLICE_BYTES)",
        to: "",
      },
    ],
    test: {
      file: "test/unit/workspaces/store.test.ts",
      title: "a page of workspaces ends before their references take more than 2 MiB, and has at least one",
    },
  },
  {
    name: "all records of an owner with many workspaces are read at once, which keeps other callers waiting",
    changes: [
      {
        file: "src/workspaces/store.ts",
        from: "const AT_ONCE = 1_000;",
        to: "const AT_ONCE = 1_000_000;",
      },
    ],
    test: {
      file: "test/unit/workspaces/store.test.ts",
      title: "the records of %s are all read, some at a time",
      row: "an owner",
    },
  },
  {
    name: "each measurement of a workspace adds up the sizes of all others of its owner",
    changes: [
      {
        file: "src/workspaces/store.ts",
        from: "this.#addBytes(name.owner, sizeBytes - (before.sizeBytes ?? 0));",
        to: "this.#ownerBytes.delete(name.owner);",
      },
    ],
    test: {
      file: "test/unit/workspaces/store.test.ts",
      title: "a change of one size does not add up all others again",
    },
  },
  {
    name: "each answer that is kept for retries has all references of its workspace",
    changes: [
      {
        file: "src/workspaces/workspaces.ts",
        from: "      path: storage.pathOf(record),",
        to: `      path: storage.pathOf(record),
      ...{ traceRefs: this.#parts.store.refs(record) },`,
      },
    ],
    test: {
      file: REFERENCES,
      title: "are not kept with the answers for retries, which get those of now",
    },
  },
  {
    name: "a workspace that got room around a restart is not reported as within its quota",
    changes: [
      {
        file: "src/workspaces/quota.ts",
        from: "      this.#reported.delete(key);\n      if (isOverQuota({ sizeBytes: beforeBytes, quotaBytes }))\n",
        to: "      if (this.#reported.delete(key))\n",
      },
    ],
    test: {
      file: "test/unit/workspaces/quota-reports.test.ts",
      title: "%s over its quota that got room around a restart is reported as within it, once",
      row: "a workspace",
    },
  },
  {
    name: "the gauges of shared directories are 0 after a restart",
    changes: [{ file: "src/workspaces/manager.ts", from: "        quota.resume(record);\n", to: "" }],
    test: { file: MEASURING, title: SHARED_KNOWN },
  },
  {
    name: "the gauges of shared directories count those without a quota",
    changes: [
      {
        file: "src/workspaces/quota.ts",
        from: "isShared(name) && this.#storage.quotaOf(name).quotaBytes !== undefined",
        to: "isShared(name)",
      },
    ],
    test: { file: MEASURING, title: SHARED_KNOWN },
  },
  {
    name: "a workspace that is created again is not reported when it exceeds its quota again",
    changes: [{ file: "src/workspaces/workspaces.ts", from: "    quota.forget(record);\n", to: "" }],
    test: {
      file: "test/integration/workspaces/quota-measuring.test.ts",
      title: "a workspace that was deleted and created again is reported again when it exceeds its quota",
    },
  },
  {
    name: "each refused call measures its tenant's workspaces",
    changes: [
      {
        file: "src/workspaces/rechecks.ts",
        from: "    await this.#rests.get(key)?.over;\n",
        to: "",
      },
    ],
    test: {
      file: QUOTA,
      title: "callers who repeat a refused call cause few measurements: %s",
      row: "long ones",
    },
  },
  {
    name: "a call that waited while its workspace was measured has it measured again",
    changes: [
      {
        file: "src/workspaces/ensure.ts",
        from: "const request = { signal, arrivedMs: this.#parts.clock.monotonicMs() };",
        to: "const request = { signal, arrivedMs: Number.POSITIVE_INFINITY };",
      },
    ],
    test: {
      file: QUOTA,
      title:
        "calls that wait for their workspace's lock while it is measured are refused without another measurement",
    },
  },
  {
    name: "a call after a deletion of files is refused by an older measurement",
    changes: [
      {
        file: "src/workspaces/rechecks.ts",
        from: "last.measuredFromMs >= arrivedMs) return;",
        to: "last.measuredFromMs >= 0) return;",
      },
    ],
    test: {
      file: QUOTA,
      title: "a caller who deletes files after a refusal is not refused again, and waits seconds at most",
    },
  },
  {
    name: "a workspace whose size cannot be stored is not measured",
    changes: [
      {
        file: "src/workspaces/store.ts",
        from: 'if (!hasReason(error, "NO_SPACE")) throw error;',
        to: "throw error;",
      },
    ],
    test: {
      file: "test/unit/workspaces/store.test.ts",
      title: "a size that is measured while the disk is full counts until the next one is stored",
    },
  },
  {
    name: "the names of imports that arrive have no limit together",
    changes: [{ file: "src/workspaces/host/import.ts", from: "      take,\n", to: "" }],
    test: {
      file: IMPORTS,
      title: "imports gather no more names together than there is memory for, and give it back",
    },
  },
  {
    name: "each call that asks for the size of a workspace measures it",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "await quota.measureAgain(name, options.signal);",
        to: "await quota.measure(name, options.signal);",
      },
    ],
    test: {
      file: QUOTA,
      title: "callers who keep asking for the size of %s cause few measurements",
      row: "a workspace",
    },
  },
  {
    name: "each call that asks for the size of a shared directory measures it",
    changes: [
      {
        file: "src/workspaces/quota.ts",
        from: "await this.measureAgain(name, signal);",
        to: "await this.measure(name, signal);",
      },
    ],
    test: {
      file: QUOTA,
      title: "callers who keep asking for the size of %s cause few measurements",
      row: "a shared directory",
    },
  },
  {
    name: "all names of temporary files in a volume are looked at in one turn of the event loop",
    changes: [
      {
        file: "src/workspaces/volumes/measure.ts",
        from: "        if (turn) await turn;\n",
        to: "        void turn;\n",
      },
    ],
    test: {
      file: "test/unit/workspaces/sweep-volume.test.ts",
      title: "many names of temporary files in a volume do not block the event loop",
    },
  },
  {
    name: "what a replacement could not remove comes back after its workspace is deleted",
    changes: [
      {
        file: "src/workspaces/host/directories.ts",
        from: "      if ((await identityOf(old)) !== undefined) await this.#trash.purge(old);\n",
        to: "",
      },
    ],
    test: {
      file: IMPORTS,
      title: "what a replacement could not remove is removed with its workspace, and does not come back",
    },
  },
  {
    name: "a changed quota does not apply to workspaces that exist",
    changes: [
      {
        file: "src/workspaces/host/directories.ts",
        from: "    else await onDisk(async () => this.#quota?.limit(place));\n",
        to: "",
      },
    ],
    test: {
      file: LIMITS,
      title: "after the start, a quota that was changed applies to the workspaces that exist",
    },
  },
  {
    name: "an import whose files cannot be removed keeps its room",
    changes: [
      {
        file: "src/workspaces/host/import.ts",
        from: `    } finally {
      await taken?.endImport(place);
    }
`,
        to: `    } finally {
    }
    await taken?.endImport(place);
`,
      },
    ],
    test: {
      file: LIMITS,
      title: "an import gives back its room, even if its files cannot be removed",
    },
  },
  {
    name: "an import that is in place fails if its workspace cannot be measured",
    changes: [
      {
        file: "src/workspaces/quota.ts",
        from: "await this.#tryToMeasure(name);",
        to: "await this.measure(name);",
      },
    ],
    test: {
      file: IMPORTS,
      title: "an import whose files are in place succeeds, whether the workspace can be measured or not",
    },
  },
  {
    name: "a database that cannot be read for a moment ends the service",
    changes: [
      {
        file: "src/workspaces/quota.ts",
        from: `        this.#logger.error({ err: error }, "quotas are not watched: the next round tries again");`,
        to: "        throw error;",
      },
    ],
    test: {
      file: "test/unit/workspaces/stop.test.ts",
      title: "a database that cannot be read ends neither the watch of quotas nor the service",
    },
  },
  {
    name: "the search for strays hashes the ids of all workspaces in one turn of the event loop",
    changes: [
      {
        file: "src/workspaces/host/directories.ts",
        from: "      if (turn) await turn;\n",
        to: "      void turn;\n",
      },
    ],
    test: {
      file: "test/integration/workspaces/host/strays.test.ts",
      title: "the search for strays among many workspaces does not block the event loop",
    },
  },
  {
    name: "a workspace that is created while others are listed is listed as a stray",
    changes: [
      {
        file: "src/workspaces/host/directories.ts",
        from: "    const root = this.#layout.ownerRoot(owner);\n    const names",
        to: "    known = [...known];\n    const root = this.#layout.ownerRoot(owner);\n    const names",
      },
    ],
    test: {
      file: "test/integration/workspaces/host/strays.test.ts",
      title: "a workspace that is created during the search is no stray",
    },
  },
  {
    name: "a failed import leaves an empty workspace",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "workspaces.locked(name, () => workspaces.makeForImport(name));",
        to: "workspaces.locked(name, async () => (await workspaces.make(name)).record);",
      },
    ],
    test: {
      file: IMPORTS,
      title: "a failed import leaves no workspace, unless somebody else has created it meanwhile",
    },
  },
  {
    name: "a change that a comparison has found waits for the next one",
    changes: [
      {
        file: "src/workspaces/diff.ts",
        from: "await Promise.race([next, late.promise])",
        to: "await Promise.race([next])",
      },
    ],
    test: {
      file: "test/unit/workspaces/diff.test.ts",
      title: "a change does not wait for the next one, however long that takes",
    },
  },
  {
    name: "a deep tree of a sandbox makes tar take gigabytes of the host's memory",
    changes: [
      {
        file: "src/workspaces/host/tools.ts",
        from: "[...LIMITED, ...prefix(capabilities), ...argv]",
        to: "[...prefix(capabilities), ...argv]",
      },
    ],
    test: {
      file: "test/integration/workspaces/host/tools.test.ts",
      title: "a tool gets 512 MiB of memory, and a tree for which that is too little is refused",
    },
  },
  {
    name: "the search for temporary files in a volume gathers a path of any length",
    changes: [
      {
        file: "src/workspaces/volumes/measure.ts",
        from: 'rest = (lines.pop() ?? "").slice(-MAX_NAME_BYTES - 1);',
        to: 'rest = lines.pop() ?? "";',
      },
    ],
    test: {
      file: "test/unit/workspaces/sweep-volume.test.ts",
      title: "a path of any length in a volume costs no more than as many short ones",
    },
  },
  {
    name: "the size of content that an import has replaced is stored for the new content",
    changes: [
      {
        file: "src/workspaces/quota.ts",
        from: "    if (before.tree !== place.tree) return this.measure(name, signal);\n",
        to: "",
      },
    ],
    test: {
      file: "test/unit/workspaces/quota.test.ts",
      title: "a measurement during which an import replaces the content counts as one of the new content",
    },
  },
  {
    name: "what is not Berth's is deleted after a crash in a fork onto it",
    changes: [
      {
        file: "src/workspaces/fork.ts",
        from: "    await storage.assertFree(target);\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/workspaces/foreign.test.ts",
      title: "what the server does not know outlives a fork in its place, even if the service crashes in it",
    },
  },
  {
    name: "a repeated addition of a reference moves a trace back",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "      if (subject !== undefined) return { workspace: workspaces.view(name), previousWorkspaceId: subject };\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/workspaces/deletions.test.ts",
      title:
        "a reference that is added or removed again, because the answer was lost, undoes no later change",
    },
  },
  {
    name: "a repeated removal of a reference removes what was added since",
    changes: [
      {
        file: "src/workspaces/manager.ts",
        from: "if (progress.subject === undefined) {",
        to: "if (progress.subject !== traceId || traceId) {",
      },
    ],
    test: {
      file: "test/integration/workspaces/deletions.test.ts",
      title:
        "a reference that is added or removed again, because the answer was lost, undoes no later change",
    },
  },
];

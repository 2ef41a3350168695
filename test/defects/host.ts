import type { Defect } from "./defect.ts";

const HOST_USERS = {
  file: "test/integration/sandboxes/host-users.test.ts",
  title: "other users of the host reach none of the files that sandboxes leave in directories that were open",
};

/** What gave a local user of the host more than he had. */
export const HOST_DEFECTS: readonly Defect[] = [
  {
    name: "a workspaces root that others may enter is used as it is",
    changes: [
      {
        file: "src/workspaces/host/directories.ts",
        from: "makePrivate(this.#layout.privateRoot);",
        to: "void makePrivate;\n      await mkdir(root, { recursive: true, mode: ROOT_MODE });",
      },
    ],
    test: HOST_USERS,
  },
  {
    name: "a shared root is made open to everybody wherever it lies",
    changes: [
      {
        file: "src/workspaces/host/shared-directories.ts",
        from: "if (isShared(root)) return makeOpen(root);",
        to: 'if (isShared(root) || root !== "") return makeOpen(root);',
      },
    ],
    test: HOST_USERS,
  },
  {
    name: "the database is readable to everybody who comes to it",
    changes: [
      {
        file: "src/store.ts",
        from: "      dataDir.makeDatabasePrivate();\n",
        to: "",
      },
    ],
    test: HOST_USERS,
  },
  {
    name: "a mount that the kernel refuses is reported as a failed start of the sandbox",
    changes: [
      {
        file: "src/engine/mounts.ts",
        from: "  if (target === undefined) return undefined;",
        to: "  if (target === undefined || words !== undefined) return undefined;",
      },
    ],
    test: {
      file: "test/integration/sandboxes/mount-targets.test.ts",
      title: "a mount at %s is refused with its field",
      row: "/etc/hosts",
    },
  },
  {
    name: "a mount may hide what the sandbox needs of the kernel",
    changes: [
      {
        file: "src/engine/mounts.ts",
        from: "KERNELS.find((one) => isWithin(target, one))",
        to: "KERNELS.find(() => false)",
      },
    ],
    test: {
      file: "test/integration/sandboxes/mount-targets.test.ts",
      title: "a mount at %s is refused with its field",
      row: "/sys",
    },
  },
  {
    name: "a shared root opens the data directory or the workspaces of all tenants to sandboxes",
    changes: [
      {
        file: "src/workspaces/host/shared-directories.ts",
        from: "if (!isInside && !isWithin(real, place)) continue;",
        to: "if (!isInside || real !== place) continue;",
      },
    ],
    test: {
      file: "test/integration/base/private-directory.test.ts",
      title: "is refused before it is opened: %s",
      row: "the data directory",
    },
  },
  {
    name: "an allowed host path gives a sandbox the service's own directories",
    changes: [
      {
        file: "src/engine/choose.ts",
        from: "hiddenHostPaths: [dataDir, workspacesRoot]",
        to: "hiddenHostPaths: [dataDir, workspacesRoot].slice(2)",
      },
    ],
    test: {
      file: "test/integration/sandboxes/mount-targets.test.ts",
      title:
        "a directory of the service, or one that holds or lies in one, is not mounted though it is allowed",
    },
  },
  {
    name: "for a shared root of the system, the advice moves the system's files",
    changes: [
      {
        file: "src/workspaces/host/shared-directories.ts",
        from: "if (isForEverybody(realPlace(root), statSync(root).mode)) return",
        to: 'if (root === "" && isForEverybody(realPlace(root), 0)) return',
      },
    ],
    test: {
      file: "test/integration/base/private-directory.test.ts",
      title: "that is the system's is refused, and the advice is to use another: %s",
      row: "/etc",
    },
  },
];

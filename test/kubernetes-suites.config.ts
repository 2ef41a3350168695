import { defineConfig } from "vitest/config";

const processes = "test/integration/processes";

// Suites of what stands on engines, over Kubernetes: npm run test:kubernetes. Those of mounts, networks,
// restarts and desktops are not among them, nor what counts Docker's containers.
//
// Of test/integration/workspaces, whose tests look into the directories that workspaces are on one machine,
// quota.test.ts and shared-quota.test.ts bound those by options that volumes do not take; disk-trouble, docker,
// ordinary-user, quota-measuring, roots, warm and host/ are about that disk or that daemon; locks and model have an engine
// in memory; left-behind plants files there; the others (archives, busy-tree, crashes, hostile, references, sandboxes) read what
// they check there. What they demand of claims is in kubernetes/workspaces.kubernetes.ts.
export default defineConfig({
  test: {
    include: [
      "test/integration/sessions/{bash,bash-property,code,files,out-of-memory,python,sessions}.test.ts",
      "test/integration/files/{archive,directories,hostile-tools,kinds,list,names,read,stat,transfer,watch,write}.test.ts",
      `${processes}/exec/{callers,ends,input,run-command}.test.ts`,
      `${processes}/{attach,command-timeout,concurrent-execs,cpython-regression,exec-cases,exec-property}.test.ts`,
      `${processes}/{lost-callers,output-volume,readers}.test.ts`,
      "test/integration/runs/{bad-input,run}.test.ts",
      "test/integration/sandboxes/usage.test.ts",
    ],
    globalSetup: ["test/support/global-setup.ts"],
    setupFiles: ["test/support/setup.ts"],
    pool: "forks",
    maxWorkers: 2,
    retry: 0,
    expect: { poll: { timeout: 60_000 } },
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});

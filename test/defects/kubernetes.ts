import type { Defect } from "./defect.ts";

const TRUTH = "test/integration/kubernetes/truth.kubernetes.ts";
const DISRUPTION = "test/unit/engine/kubernetes/disruption.test.ts";

/** Those of the Kubernetes engine. */
export const KUBERNETES_DEFECTS: readonly Defect[] = [
  {
    name: "a Success of Kubernetes without a mark counts as 0",
    changes: [
      {
        file: "src/engine/kubernetes/process.ts",
        from: "if (!this.#terminal) return code === SPAWN_EXIT ? undefined : this.#start.whyLost(status);",
        to: `if (status?.status === "Success") this.#code.resolve(0);
    if (!this.#terminal) return code === SPAWN_EXIT ? undefined : this.#start.whyLost(status);`,
      },
    ],
    test: {
      file: TRUTH,
      title: "a Success of Kubernetes without Berth's mark is no exit code",
    },
  },
  {
    name: "pods are not listed again where the API server forgot what changed",
    changes: [
      {
        file: "src/engine/kubernetes/pods.ts",
        from: "          version = undefined;\n",
        to: "          await sleep(MAX_RETRY_MS);\n",
      },
    ],
    test: {
      file: TRUTH,
      title: "what happened while the API server forgot is heard all the same",
    },
  },
  {
    name: "the pod of a create that failed stays",
    changes: [
      {
        file: "src/engine/kubernetes/engine.ts",
        from: "        await within(this.#removeNamed(name), CLEAN_UP_MS);\n",
        to: "",
      },
    ],
    test: { file: TRUTH, title: "a create that fails leaves no pod" },
  },
  {
    name: "a lost node gives no cause",
    changes: [
      {
        file: "src/engine/kubernetes/disruption.ts",
        from: 'if (reason === "DeletionByPodGC") return true;',
        to: "",
      },
    ],
    test: { file: DISRUPTION, title: "a node that Kubernetes has given up is lost: %s", row: "collected" },
  },
  {
    name: "a node with a taint counts as lost though it answers",
    changes: [
      {
        file: "src/engine/kubernetes/disruption.ts",
        from: 'reason === "DeletionByTaintManager" && isNodeSilent(pod)',
        to: 'reason === "DeletionByTaintManager"',
      },
    ],
    test: { file: DISRUPTION, title: "an end on a node that answers is no lost node: %s", row: "tainted" },
  },
  {
    name: "the lease on the instance is not checked",
    changes: [{ file: "src/engine/kubernetes/lease.ts", from: "      if (isFree) {\n", to: "      {\n" }],
    test: {
      file: "test/integration/kubernetes/lease.kubernetes.ts",
      title: "is refused to the second, with the first one's name, until that is gone",
    },
  },
];

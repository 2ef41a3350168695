import type { Defect } from "./defect.ts";

const DESCRIPTORS = "test/integration/engine/bubblewrap/descriptors.test.ts";

/** Those of the bubblewrap engine. */
export const BUBBLEWRAP_DEFECTS: readonly Defect[] = [
  {
    name: "a create with a mount ends a service that may open only a few more files",
    changes: [
      {
        file: "src/engine/bubblewrap/create.ts",
        from: '  keeper.once("error", expected.fail);\n  // It has no streams then.\n  if (keeper.pid === undefined) return expected.started;\n',
        to: "",
      },
      {
        file: "src/engine/bubblewrap/create.ts",
        from: 'keeper.once("exit",',
        to: 'keeper.once("error", expected.fail);\n  keeper.once("exit",',
      },
    ],
    test: {
      file: DESCRIPTORS,
      title: "a create with a mount fails by itself, however few descriptors are left",
    },
  },
  {
    name: "a launcher that cannot be started does not say why",
    changes: [
      {
        file: "src/engine/bubblewrap/launcher.ts",
        from: "    if (this.#child.pid === undefined) return;\n    onGroup(this.#child.pid);\n",
        to: "    if (this.#child.pid !== undefined) onGroup(this.#child.pid);\n",
      },
    ],
    test: {
      file: "test/integration/engine/bubblewrap/launcher.test.ts",
      title: "a launcher that cannot be started says why, and the next one works",
    },
  },
];

/** The arrows between the layers; docs/architecture.md says why. */
const onlyFrom = (name, path, allowed, comment) => ({
  name,
  comment,
  severity: "error",
  from: { path: "^src", pathNot: allowed },
  to: { path },
});

module.exports = {
  forbidden: [
    { name: "no-circular", severity: "error", from: {}, to: { circular: true } },
    {
      name: "no-orphans",
      severity: "error",
      from: { orphan: true, path: "^src", pathNot: "^src/main\\.ts$" },
      to: {},
    },
    {
      name: "core-stands-alone",
      comment: "The heart knows no wire format, no transport and no driver.",
      severity: "error",
      from: { path: "^src/core" },
      to: { path: "^(gen/|src/(?!core/))|node_modules/(@connectrpc|@bufbuild|dockerode)" },
    },
    {
      name: "process-over-core",
      comment: "Processes inside a sandbox are written over the engine port alone.",
      severity: "error",
      from: { path: "^src/process" },
      to: { path: "^(gen/|src/(?!core/|process/))|node_modules/(@connectrpc|@bufbuild|dockerode)" },
    },
    {
      name: "files-over-process",
      comment: "Files inside a sandbox are read and written by jobs that run there.",
      severity: "error",
      from: { path: "^src/files" },
      to: { path: "^(gen/|src/(?!core/|process/|files/))|node_modules/(@connectrpc|@bufbuild|dockerode)" },
    },
    {
      name: "resources-over-process",
      comment: "Resources are what runs in a sandbox, over processes and files.",
      severity: "error",
      from: { path: "^src/resource" },
      to: {
        path: "^(gen/|src/(?!core/|process/|files/|resource/))|node_modules/(@connectrpc|@bufbuild|dockerode)",
      },
    },
    {
      name: "engines-over-ports",
      comment: "An engine implements core's port and imports nothing else of Berth.",
      severity: "error",
      from: { path: "^src/engine" },
      to: { path: "^(gen/|src/(?!core/|engine/))|node_modules/(@connectrpc|@bufbuild)" },
    },
    {
      name: "store-over-ports",
      comment: "A store implements core's ports and imports nothing else of Berth.",
      severity: "error",
      from: { path: "^src/store" },
      to: {
        path: "^(gen/|src/(?!core/|store/|private-directory\\.ts$))|node_modules/(@connectrpc|@bufbuild|dockerode)",
      },
    },
    {
      name: "program-over-the-api",
      comment:
        "The program's commands are clients; what `serve` and `doctor` need is handed in by main.ts. Archives are read, " +
        "written and checked by the same code at both ends.",
      severity: "error",
      from: { path: "^src/cli" },
      to: {
        path: "^src/(?!cli/|config|core/|client/|listen-address\\.ts$|files/(tar/|unpack-entries\\.ts$|byte-string\\.ts$|temporary-names\\.ts$))",
      },
    },
    {
      name: "options-know-no-parts",
      comment: "What is configured is read without knowing who uses it.",
      severity: "error",
      from: { path: "^src/config" },
      to: { path: "^(gen/|src/(?!config|core/|listen-address\\.ts$))" },
    },
    {
      name: "workspaces-over-ports",
      comment:
        "Workspaces' directories implement core's port; archives and temporary files are as those of sandboxes.",
      severity: "error",
      from: { path: "^src/workspace" },
      to: {
        path: "^(gen/|src/(?!core/|workspace/|private-directory\\.ts$|files/(tar/|unpack-entries\\.ts$|byte-string\\.ts$|temporary-names\\.ts$)))|node_modules/(@connectrpc|@bufbuild|dockerode)",
      },
    },
    onlyFrom(
      "docker-stays-home",
      "node_modules/dockerode",
      "^src/engine/docker/",
      "dockerode never leaves its engine.",
    ),
    onlyFrom(
      "gen-under-rpc-and-clients",
      "^gen/",
      "^src/(rpc|cli|client)/",
      "Generated code is the wire's business.",
    ),
    onlyFrom(
      "connect-under-rpc-and-clients",
      "node_modules/@connectrpc",
      "^src/(rpc|cli|client)/",
      "The transport is the wire's business.",
    ),
    onlyFrom(
      "engines-named-once",
      "^src/engine/",
      "^src/(engine/|app\\.ts$)",
      "Only app.ts names concrete engines.",
    ),
    onlyFrom(
      "store-named-once",
      "^src/store/",
      "^src/(store/|app\\.ts$)",
      "Only app.ts names concrete stores.",
    ),
    onlyFrom(
      "resources-named-once",
      "^src/resource/",
      "^src/(resource/|session-parts\\.ts$)",
      "Only session-parts.ts names concrete resources.",
    ),
    onlyFrom(
      "workspaces-named-once",
      "^src/workspace/",
      "^src/(workspace/|workspace-parts\\.ts$)",
      "Only workspace-parts.ts names concrete directories.",
    ),
    onlyFrom("rpc-named-once", "^src/rpc/", "^src/(rpc/|app\\.ts$)", "Nothing below the handlers calls up."),
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: {
      extensions: [".ts", ".js", ".mjs", ".cjs"],
      mainFields: ["module", "main", "types"],
    },
  },
};

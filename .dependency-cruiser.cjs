/**
 * The arrows between the folders of src/, which docs/architecture.md draws. A
 * folder may import itself and what is listed for it; nothing else of Berth.
 */
const FOLDERS = {
  base: [],
  state: ["base"],
  engine: ["base"],
  egress: ["base", "engine"],
  sandboxes: ["base", "state", "engine", "egress"],
  processes: ["base", "state", "engine", "sandboxes"],
  runs: ["base", "state", "engine", "sandboxes"],
  files: ["base", "engine", "sandboxes", "processes"],
  sessions: ["base", "state", "engine", "sandboxes", "processes", "files"],
  workspaces: ["base", "state", "engine", "sandboxes", "files"],
  // Transport only: it knows no service.
  server: ["base"],
  tenants: ["base", "server"],
  rpc: [
    "base",
    "state",
    "engine",
    "egress",
    "sandboxes",
    "processes",
    "runs",
    "files",
    "sessions",
    "workspaces",
    "server",
  ],
  // The settings of each part stand at the part.
  config: ["base", "engine", "sandboxes", "server"],
  // A client of the API. Archives are read, written and checked by the same code at both ends.
  cli: ["base", "config", "files/tar", "files/unpack-entries\\.ts", "files/temporary-names\\.ts"],
};

/** What more a few files of a folder import. */
const EXCEPTIONS = {
  // Quotas in the tokens file are written as the service's options are.
  tenants: "config/values\\.ts|sandboxes/tenant-quotas\\.ts",
  cli: "engine/port\\.ts|server/listen-address\\.ts|tenants/(token|token-file|live-tokens|edit-tokens)\\.ts",
};

/** What of the TypeScript client browsers do not load. */
const NODE_ONLY = "^clients/typescript/src/(node|client-certificate|http2-connection|profile)\\.ts$";

const arrows = Object.entries(FOLDERS).map(([folder, below]) => ({
  name: `${folder}-folder`,
  comment: `src/${folder} imports only: ${["itself", ...below].join(", ")}.`,
  severity: "error",
  from: { path: `^src/${folder}/` },
  to: {
    path: "^src/",
    pathNot: [
      ...[folder, ...below].map((name) => `^src/${name}${name.endsWith(".ts") ? "$" : "/"}`),
      ...(EXCEPTIONS[folder] ? [`^src/(${EXCEPTIONS[folder]})$`] : []),
    ],
  },
}));

const onlyFrom = (name, path, allowed, comment) => ({
  name,
  comment,
  severity: "error",
  from: { path: "^src", pathNot: allowed },
  to: { path },
});

module.exports = {
  forbidden: [
    ...arrows,
    {
      name: "every-folder-has-its-arrows",
      comment: "A new folder of src/ is entered in FOLDERS.",
      severity: "error",
      from: { path: "^src/[^/]+/", pathNot: `^src/(${Object.keys(FOLDERS).join("|")})/` },
      to: {},
    },
    {
      name: "only-main-and-app-compose",
      comment: "The files at the top put the service together; no folder knows them.",
      severity: "error",
      from: { path: "^src/[^/]+/" },
      to: { path: "^src/[^/]+\\.ts$" },
    },
    {
      name: "client-package-apart",
      comment: "@berth/client is a package of its own: it knows the API and nothing of the service.",
      severity: "error",
      from: { path: "^clients/typescript/" },
      to: { path: "^(src|test|bench|scripts)/" },
    },
    {
      name: "no-node-in-browsers",
      comment: "Only the entry for Node, and its connection, import what browsers lack.",
      severity: "error",
      from: { path: "^clients/typescript/src/", pathNot: NODE_ONLY },
      to: { path: `${NODE_ONLY}|node_modules/@connectrpc/connect-node` },
    },
    {
      name: "no-node-modules-in-browsers",
      comment: "Only the entry for Node, and its connection, import what browsers lack.",
      severity: "error",
      from: { path: "^clients/typescript/src/", pathNot: NODE_ONLY },
      to: { dependencyTypes: ["core"] },
    },
    { name: "no-circular", severity: "error", from: {}, to: { circular: true } },
    {
      name: "no-orphans",
      severity: "error",
      from: { orphan: true, path: "^src", pathNot: "^src/main\\.ts$" },
      to: {},
    },
    {
      name: "engines-apart",
      comment: "An engine knows no other engine; what several share lies beside them.",
      severity: "error",
      from: { path: "^src/engine/(docker|bubblewrap|kubernetes)/" },
      to: { path: "^src/engine/(docker|bubblewrap|kubernetes)/", pathNot: "^src/engine/$1/" },
    },
    onlyFrom(
      "engines-named-once",
      "^src/engine/(docker|bubblewrap|kubernetes)/",
      "^src/engine/(docker|bubblewrap|kubernetes|choose\\.ts)",
      "Only engine/choose.ts names concrete engines.",
    ),
    onlyFrom(
      "types-named-once",
      "^src/sessions/types/[^/]+/",
      "^src/sessions/(types/|parts\\.ts$)",
      "Only sessions/parts.ts names concrete session types.",
    ),
    onlyFrom(
      "docker-stays-home",
      "node_modules/dockerode",
      "^src/engine/docker/",
      "dockerode never leaves its engine.",
    ),
    onlyFrom(
      "kubernetes-stays-home",
      "node_modules/@kubernetes",
      "^src/engine/kubernetes/",
      "Kubernetes' client never leaves its engine.",
    ),
    onlyFrom(
      "wire-at-the-edge",
      "^gen/|node_modules/(@connectrpc|@bufbuild)",
      "^src/(rpc|server|cli)/",
      "Generated code and the transport are the wire's business.",
    ),
    onlyFrom(
      "database-in-stores",
      "^src/state/database\\.ts$",
      "^src/(state/|store\\.ts$|[^/]+/store\\.ts$|(sandboxes|processes|runs)/(journal|manager)\\.ts$)",
      "SQL is written in stores and in state/ alone.",
    ),
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

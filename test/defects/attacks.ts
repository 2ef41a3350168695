import type { Defect } from "./defect.ts";

const ATTACKS = "test/integration/server/attacks.alone.test.ts";
const SERVED = "%s: other clients are served, memory stays bounded, and everything recovers";

/** Of attacks on the port. */
export const ATTACK_DEFECTS: readonly Defect[] = [
  {
    name: "what was decompressed lies about until V8 collects it",
    changes: [{ file: "src/server/decompressor.ts", from: "    parts.forEach(release);\n", to: "" }],
    test: { file: ATTACKS, title: SERVED, row: "gzip that becomes a thousand times as much, in every codec" },
  },
  {
    name: "a connection may cancel any number of calls",
    changes: [
      {
        file: "src/server/listener.ts",
        from: "streamResetBurst: limits.maxConcurrentStreams",
        to: "streamResetBurst: 1000 * limits.maxConcurrentStreams",
      },
    ],
    test: { file: ATTACKS, title: SERVED, row: "10,000 calls that are canceled as they come" },
  },
  {
    name: "connections are few",
    changes: [{ file: "src/server/limits.ts", from: "maxConnections: 4096", to: "maxConnections: 400" }],
    test: { file: ATTACKS, title: SERVED, row: "1,000 idle connections" },
  },
];

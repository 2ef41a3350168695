import type { TestSettings } from "./settings.ts";

export type EngineName = "docker" | "bubblewrap" | "kubernetes";

/**
 * The engines, for suites that hold on each. The whole of a file's tests goes
 * into one block, with a service of its own:
 *
 *     describe.each(ENGINES)("on $name", ({ name, settings }) => {
 *       const service = useApp({ ...settings, sessionTtlMs: 1000 });
 *       test("…", () => service.client.…);
 *     });
 *
 * With bubblewrap a sandbox sees this machine's own programs; it takes no image
 * but the service's default (leave it unset), has one user, `user` (1000), and
 * no network. It ends with the service. A test that cannot hold there goes into
 * a block for `docker` alone, beside a word about why.
 */
export const ENGINES: readonly { readonly name: EngineName; readonly settings: TestSettings }[] =
  // npm run test:kubernetes
  process.env.BERTH_TEST_ENGINE === "kubernetes"
    ? [{ name: "kubernetes", settings: { engine: "kubernetes" } }]
    : [
        { name: "docker", settings: { engine: "docker" } },
        { name: "bubblewrap", settings: { engine: "bubblewrap" } },
      ];

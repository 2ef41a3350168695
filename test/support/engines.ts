import { test } from "vitest";
import { EVERY_VARIANT } from "./scale.ts";
import type { TestSettings } from "./settings.ts";

export type EngineName = "docker" | "bubblewrap" | "kubernetes";

/**
 * The engines, for suites that every engine must pass. All tests of a file go into one block, with its own service:
 *
 *     describe.each(ENGINES)("on $name", ({ name, settings }) => {
 *       const service = useApp({ ...settings, sessionTtlMs: 1000 });
 *       test("…", () => service.client.…);
 *     });
 *
 * With bubblewrap a sandbox sees this machine's own programs. It takes only the service's default image (leave it
 * unset), has one user, `user` (1000), and no network. It ends with the service. A test that cannot pass there goes
 * into a block only for `docker`, with a comment that says why.
 */
export const ENGINES: readonly { readonly name: EngineName; readonly settings: TestSettings }[] =
  // npm run test:kubernetes
  process.env.BERTH_TEST_ENGINE === "kubernetes"
    ? [{ name: "kubernetes", settings: { engine: "kubernetes" } }]
    : [
        { name: "docker", settings: { engine: "docker" } },
        { name: "bubblewrap", settings: { engine: "bubblewrap" } },
      ];

/** The cases to try on this one of the {@link ENGINES}: each on one engine in `npm test`, on all of them in CI. */
export function shareOf<T>(engine: EngineName, cases: readonly T[]): T[] {
  const here = ENGINES.findIndex(({ name }) => name === engine);
  return cases.filter((_, index) => EVERY_VARIANT || index % ENGINES.length === here);
}

/**
 * Declares tests of what does not depend on the engine, such as of what a page does to a browser. In `npm test` the
 * engines take them in turn. In CI each engine has all.
 */
export function testsInTurn(engine: EngineName): (title: string, body: () => Promise<void>) => void {
  const before: string[] = [];
  return (title, body) => {
    before.push(title);
    if (shareOf(engine, before).includes(title)) test(title, body);
  };
}

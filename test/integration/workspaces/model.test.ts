import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { WorkspaceName } from "../../../src/workspaces/workspace.ts";
import { scaled } from "../../support/scale.ts";
import { OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

/** What callers may do to workspaces, and the machine to the service. */
type Act =
  | { readonly do: "create" | "cleanup" | "force" | "restart"; readonly id: string }
  | { readonly do: "add" | "remove"; readonly id: string; readonly trace: string };

const IDS = ["a", "A", "../a", "ä"];
const TRACES = ["t1", "t2", "t3", "t4", "é"];

const acts = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constantFrom("create", "cleanup", "force", "restart"),
        id: fc.constantFrom(...IDS),
      }),
    },
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constantFrom("add", "add", "remove"),
        id: fc.constantFrom(...IDS),
        trace: fc.constantFrom(...TRACES),
      }),
    },
  ) as fc.Arbitrary<Act>,
  { minLength: 1, maxLength: 40 },
);

/** A simple model: which workspaces exist, and to which one each trace belongs. */
class Model {
  readonly workspaces = new Set<string>();
  readonly traces = new Map<string, string>();

  refs(id: string): string[] {
    const all = [...this.traces].filter(([, workspace]) => workspace === id).map(([trace]) => trace);
    return all.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  }

  /** Carries out an act. Returns its answer, or the reason of a refusal. */
  act(one: Act): unknown {
    const { id } = one;
    const missing = !this.workspaces.has(id);
    switch (one.do) {
      case "restart":
        return undefined;
      case "create":
        this.workspaces.add(id);
        return missing;
      case "add": {
        const previous = this.traces.get(one.trace);
        this.workspaces.add(id);
        this.traces.set(one.trace, id);
        return previous === id ? "" : (previous ?? "");
      }
      case "remove":
        if (missing) return "WORKSPACE_NOT_FOUND";
        if (this.traces.get(one.trace) === id) this.traces.delete(one.trace);
        return this.refs(id);
      case "cleanup":
        if (missing) return "WORKSPACE_NOT_FOUND";
        return this.refs(id).length > 0 ? `WORKSPACE_IN_USE ${this.refs(id).length}` : 0;
      case "force": {
        if (missing) return "WORKSPACE_NOT_FOUND";
        const cleared = this.refs(id);
        for (const trace of cleared) this.traces.delete(trace);
        this.workspaces.delete(id);
        return cleared.length;
      }
    }
  }
}

test(
  "after any operations in any order, with restarts at any time, workspaces and references match a simple model",
  async () => {
    await fc.assert(
      fc.asyncProperty(acts, async (all) => {
        const directory = await mkdtemp(path.join(tmpdir(), "berth-model-"));
        let service = await openWorkspaces(directory);
        const model = new Model();
        const perform = async (one: Act): Promise<unknown> => {
          const name: WorkspaceName = { owner: OWNER, workspaceId: one.id };
          const options = { graceMs: 0, requestId: "" };
          switch (one.do) {
            case "restart":
              await service.close();
              service = await openWorkspaces(directory);
              return undefined;
            case "create":
              return (await service.workspaces.create(name)).created;
            case "add":
              return (await service.workspaces.addReference(name, one.trace)).previousWorkspaceId;
            case "remove":
              return service.workspaces.references(await service.workspaces.removeReference(name, one.trace));
            case "cleanup":
              return (await service.workspaces.cleanup(name, { ...options, force: false })).clearedRefs;
            case "force":
              return (await service.workspaces.cleanup(name, { ...options, force: true })).clearedRefs;
          }
        };
        try {
          for (const one of all) {
            const answer = await perform(one).catch((error: unknown) => {
              if (!(error instanceof BerthError)) throw error;
              return [error.reason, error.metadata.ref_count].filter((part) => part !== undefined).join(" ");
            });
            expect(answer).toEqual(model.act(one));
            const { workspaces: listed, broken } = await service.workspaces.list(OWNER, "", 100);
            expect(listed.map((view) => [view.workspaceId, service.workspaces.references(view)])).toEqual(
              [...model.workspaces]
                .toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
                .map((id) => [id, model.refs(id)]),
            );
            expect(broken).toEqual([]);
            for (const trace of TRACES) {
              const found = await Promise.try(
                () => service.workspaces.lookupTrace(OWNER, trace).workspaceId,
              ).catch(() => undefined);
              expect(found).toBe(model.traces.get(trace));
            }
          }
        } finally {
          await service.close();
          await rm(directory, { recursive: true, force: true });
        }
      }),
      { numRuns: scaled(500, 15) },
    );
  },
  scaled(560_000, 60_000),
);

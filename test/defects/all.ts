import type { Defect } from "./defect.ts";
import { WORKSPACE_DEFECTS } from "./workspaces.ts";

/** Every defect that `npm run test:defects` puts back. An area's own are in a file beside. */
export const DEFECTS: readonly Defect[] = [...WORKSPACE_DEFECTS];

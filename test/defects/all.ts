import { ATTACK_DEFECTS } from "./attacks.ts";
import { AUDIT_DEFECTS } from "./audit.ts";
import type { Defect } from "./defect.ts";
import { DEPLOY_DEFECTS } from "./deploy.ts";
import { DOCKER_DEFECTS } from "./docker.ts";
import { EGRESS_DEFECTS } from "./egress.ts";
import { FILE_DEFECTS } from "./files.ts";
import { HARDENING_DEFECTS } from "./hardening.ts";
import { HOST_DEFECTS } from "./host.ts";
import { HOSTILE_DEFECTS } from "./hostile.ts";
import { KUBERNETES_DEFECTS } from "./kubernetes.ts";
import { PIPE_DEFECTS } from "./pipes.ts";
import { PROCESS_DEFECTS } from "./processes.ts";
import { RUN_DEFECTS } from "./runs.ts";
import { SECRET_DEFECTS } from "./secrets.ts";
import { SECURITY_DEFECTS } from "./security.ts";
import { SESSION_DEFECTS } from "./sessions.ts";
import { STATE_DEFECTS } from "./state.ts";
import { TENANT_DEFECTS } from "./tenants.ts";
import { WIRE_DEFECTS } from "./wire.ts";
import { WORKSPACE_DEFECTS } from "./workspaces.ts";

/** Every defect that `npm run test:defects` puts back. An area's own are in a file beside. */
export const DEFECTS: readonly Defect[] = [
  ...ATTACK_DEFECTS,
  ...AUDIT_DEFECTS,
  ...DEPLOY_DEFECTS,
  ...DOCKER_DEFECTS,
  ...EGRESS_DEFECTS,
  ...FILE_DEFECTS,
  ...HARDENING_DEFECTS,
  ...HOST_DEFECTS,
  ...HOSTILE_DEFECTS,
  ...KUBERNETES_DEFECTS,
  ...PIPE_DEFECTS,
  ...PROCESS_DEFECTS,
  ...RUN_DEFECTS,
  ...SECURITY_DEFECTS,
  ...SECRET_DEFECTS,
  ...SESSION_DEFECTS,
  ...STATE_DEFECTS,
  ...TENANT_DEFECTS,
  ...WIRE_DEFECTS,
  ...WORKSPACE_DEFECTS,
];

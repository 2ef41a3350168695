import { ATTACK_DEFECTS } from "./attacks.ts";
import { AUDIT_DEFECTS } from "./audit.ts";
import { BUBBLEWRAP_DEFECTS } from "./bubblewrap.ts";
import { CLIENT_DEFECTS } from "./clients.ts";
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
import { PROGRAM_DEFECTS } from "./program.ts";
import { RUN_DEFECTS } from "./runs.ts";
import { SECRET_DEFECTS } from "./secrets.ts";
import { SECURITY_DEFECTS } from "./security.ts";
import { SESSION_DEFECTS } from "./sessions.ts";
import { STATE_DEFECTS } from "./state.ts";
import { TENANT_DEFECTS } from "./tenants.ts";
import { WIRE_DEFECTS } from "./wire.ts";
import { WORKSPACE_DEFECTS } from "./workspaces.ts";

/** The defects of each area, by the name of its file in this directory. */
export const DEFECTS_BY_AREA: Readonly<Record<string, readonly Defect[]>> = {
  attacks: ATTACK_DEFECTS,
  audit: AUDIT_DEFECTS,
  bubblewrap: BUBBLEWRAP_DEFECTS,
  clients: CLIENT_DEFECTS,
  deploy: DEPLOY_DEFECTS,
  docker: DOCKER_DEFECTS,
  egress: EGRESS_DEFECTS,
  files: FILE_DEFECTS,
  hardening: HARDENING_DEFECTS,
  host: HOST_DEFECTS,
  hostile: HOSTILE_DEFECTS,
  kubernetes: KUBERNETES_DEFECTS,
  pipes: PIPE_DEFECTS,
  processes: PROCESS_DEFECTS,
  program: PROGRAM_DEFECTS,
  runs: RUN_DEFECTS,
  security: SECURITY_DEFECTS,
  secrets: SECRET_DEFECTS,
  sessions: SESSION_DEFECTS,
  state: STATE_DEFECTS,
  tenants: TENANT_DEFECTS,
  wire: WIRE_DEFECTS,
  workspaces: WORKSPACE_DEFECTS,
};

/** Every defect that `npm run test:defects` puts back. */
export const DEFECTS: readonly Defect[] = Object.values(DEFECTS_BY_AREA).flat();

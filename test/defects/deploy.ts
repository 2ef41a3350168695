import type { Defect } from "./defect.ts";

const NGINX = "test/integration/service/nginx.test.ts";
const ENVOY = "test/integration/service/envoy.test.ts";
const LOST = "a replica that is down: its tenants get UNAVAILABLE, others continue, and it comes back";

const WRITTEN = "a tenant is on one replica, however its token's header is written";

/** Defects in what operators deploy. */
export const DEPLOY_DEFECTS: readonly Defect[] = [
  {
    name: "nginx sends two tokens of a tenant to different replicas",
    changes: [
      { file: "deploy/nginx.conf", from: "hash $tenant consistent;", to: "hash $token_id consistent;" },
    ],
    test: {
      file: NGINX,
      title: "a tenant is on one replica, with any of its tokens, and both replicas have tenants",
    },
  },
  {
    name: "nginx knows tokens only after the word Bearer and one blank",
    changes: [{ file: "deploy/nginx.conf", from: "~*^bearer +berth_", to: "~^Bearer berth_" }],
    test: { file: NGINX, title: WRITTEN },
  },
  {
    name: "Envoy knows tokens only after the word Bearer",
    changes: [{ file: "deploy/envoy.yaml", from: 'scheme:lower() ~= "bearer"', to: 'scheme ~= "Bearer"' }],
    test: { file: ENVOY, title: WRITTEN },
  },
  {
    name: "nginx sends an admin to its own tenant's replica, whichever tenant it names",
    changes: [
      { file: "deploy/nginx.conf", from: "default $http_berth_tenant;", to: "default $token_tenant;" },
    ],
    test: { file: NGINX, title: "an admin reaches a tenant by the header berth-tenant; others may not" },
  },
  {
    name: "nginx sends the tenants of a lost replica to another, which does not know them",
    changes: [
      {
        file: "deploy/nginx.conf",
        from: "grpc_next_upstream off;",
        to: "grpc_next_upstream error non_idempotent;",
      },
    ],
    test: { file: NGINX, title: LOST },
  },
  {
    name: "nginx answers gRPC clients of a lost replica without a gRPC status",
    changes: [
      {
        file: "deploy/nginx.conf",
        from: '"~^application/grpc($|[+;])" /unavailable/grpc;',
        to: '"~^application/grpc($|[+;])" /unavailable/text;',
      },
    ],
    test: { file: NGINX, title: LOST },
  },
  {
    name: "Envoy sends two tokens of a tenant to different replicas",
    changes: [{ file: "deploy/envoy.yaml", from: "or tenants[id] or id", to: "or id" }],
    test: {
      file: ENVOY,
      title: "a tenant is on one replica, with any of its tokens, and both replicas have tenants",
    },
  },
  {
    name: "Envoy sends an admin to its own tenant's replica, whichever tenant it names",
    changes: [
      {
        file: "deploy/envoy.yaml",
        from: 'headers:get("berth-tenant") or tenants[id]',
        to: "tenants[id]",
      },
    ],
    test: { file: ENVOY, title: "an admin reaches a tenant by the header berth-tenant; others may not" },
  },
  {
    name: "Envoy sends the tenants of a lost replica to another, which does not know them",
    changes: [
      {
        file: "deploy/envoy.yaml",
        from: "hash_policy: [{ header: { header_name: x-berth-replica-of } }]",
        to: "retry_policy: { retry_on: connect-failure, num_retries: 9 }",
      },
    ],
    test: { file: ENVOY, title: LOST },
  },
  {
    name: "the program stays between the service and who started it",
    changes: [
      {
        file: "bin/berth",
        from: '[ ! -x "$node" ] || exec "$node" "$main" "$@"',
        to: '[ ! -x "$node" ] || { "$node" "$main" "$@" & trap "kill $!" TERM; wait; exit; }',
      },
    ],
    test: {
      file: "test/integration/cli/bin.test.ts",
      title: "started through a link, it becomes the program: there is no other process",
    },
  },
  {
    name: "the chart's probes fail where every client needs a certificate",
    changes: [
      {
        file: "deploy/helm/berth/templates/statefulset.yaml",
        from: '{{- if index $.Values.options "tls-client-ca" }}',
        to: "{{- if false }}",
      },
    ],
    test: {
      file: "test/integration/kubernetes/chart.kubernetes.ts",
      title: "probes present no client certificate, so they only connect if every client needs one",
    },
  },
  {
    name: "Prometheus cannot verify the replicas of the chart",
    changes: [
      {
        file: "deploy/helm/berth/templates/monitor.yaml",
        from: "      tlsConfig: {{- toYaml .Values.serviceMonitor.tlsConfig | nindent 8 }}\n",
        to: "",
      },
    ],
    test: {
      file: "test/integration/kubernetes/chart.kubernetes.ts",
      title: "has a monitor if one is wanted, with an admin's token",
    },
  },
];

import { describe } from "vitest";
import { startEnvoy } from "../../support/envoy.ts";
import { proxySuite } from "./proxy-suite.ts";

describe("deploy/envoy.yaml, before two services", () => proxySuite(startEnvoy, 503));

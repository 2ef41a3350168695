import { describe } from "vitest";
import { startNginx } from "../../support/nginx.ts";
import { proxySuite } from "./proxy-suite.ts";

describe("deploy/nginx.conf, before two services", () => proxySuite(startNginx, 502));

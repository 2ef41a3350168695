import { describe, expect, test } from "vitest";
import { parseMount, parseVolume } from "../../../src/cli/mounts.ts";
import { ValueError } from "../../../src/config/values.ts";

const workspace = (value: string, target: string, readOnly = false) => ({
  source: { case: "workspaceId", value },
  target,
  readOnly,
});
const hostPath = (value: string, target: string, readOnly = false) => ({
  source: { case: "hostPath", value },
  target,
  readOnly,
});

test.each([
  ["job:/data", workspace("job", "/data")],
  ["job/1:/data:ro", workspace("job/1", "/data", true)],
  ["job:/data:rw", workspace("job", "/data")],
  ["/srv/data:/data:ro", hostPath("/srv/data", "/data", true)],
])("-v %s", (text, mount) => expect(parseVolume(text)).toEqual(mount));

test.each([
  ["type=workspace,source=a:b,target=/data", workspace("a:b", "/data")],
  ["type=bind,src=/srv/a=b,dst=/data,readonly", hostPath("/srv/a=b", "/data", true)],
  ["type=bind,source=/srv,destination=/data,ro=false", hostPath("/srv", "/data")],
  ["target=/data,readonly=true,type=workspace,source=/x", workspace("/x", "/data", true)],
])("--mount %s", (text, mount) => expect(parseMount(text)).toEqual(mount));

describe("refused, with what to write", () => {
  test.each([
    ["", "a source and a target are needed"],
    ["job", "a source and a target are needed"],
    [":/data", "a source and a target are needed"],
    ["job:", "a source and a target are needed"],
    ["job:/a:/b:ro", "too many colons"],
    ["job:/data:rx", '"rx" is neither ro nor rw'],
    ["job:data", "the target is an absolute path in the sandbox"],
    ["./data:/data", "a directory is named by its absolute path"],
    ["~/data:/data", "a directory is named by its absolute path"],
  ])("-v %j", (text, problem) => {
    expect(() => parseVolume(text)).toThrow(ValueError);
    expect(() => parseVolume(text)).toThrow(problem);
    expect(() => parseVolume(text)).toThrow("write WORKSPACE:/TARGET");
  });

  test.each([
    ["", '"" is not a setting'],
    ["type=bind,path=/x", '"path" is not a setting'],
    ["constructor=1", '"constructor" is not a setting'],
    ["type=tmpfs,target=/x", "type is neither workspace nor bind"],
    ["type=workspace,target=/x", "there is no source"],
    ["type=workspace,source=a", "there is no target"],
    ["type=workspace,source=a,target=x", "there is no target that is an absolute path"],
    ["type=bind,source=a,target=/x", "the source of a bind is not an absolute path"],
    ["type=bind,src=/a,source=/b,target=/x", "source is set twice"],
    ["type=bind,source,target=/x", "source has no such value"],
    ["type=bind,source=/a,target=/x,ro=maybe", "ro has no such value"],
  ])("--mount %j", (text, problem) => {
    expect(() => parseMount(text)).toThrow(ValueError);
    expect(() => parseMount(text)).toThrow(problem);
    expect(() => parseMount(text)).toThrow("write type=workspace|bind,");
  });
});

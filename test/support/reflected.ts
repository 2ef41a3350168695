import { create, createFileRegistry, type DescMethod, fromBinary } from "@bufbuild/protobuf";
import {
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { ServerReflection } from "../../gen/ts/grpc/reflection/v1/reflection_pb.js";

/** All methods of a service, by reflection. */
export async function reflectedMethods(address: string, token: string): Promise<DescMethod[]> {
  const transport = createGrpcTransport({ baseUrl: `http://${address}` });
  const headers = { authorization: `Bearer ${token}` };
  const ask = async (question: { case: "listServices" | "fileContainingSymbol"; value: string }) => {
    const questions = (async function* () {
      yield { messageRequest: question };
    })();
    for await (const answer of createClient(ServerReflection, transport).serverReflectionInfo(questions, {
      headers,
    })) {
      return answer.messageResponse;
    }
    throw new Error("reflection did not answer");
  };
  const services = await ask({ case: "listServices", value: "" });
  if (services.case !== "listServicesResponse") throw new Error(`reflection answered ${services.case}`);
  const files = new Map<string, FileDescriptorProto>();
  const names = services.value.service.map(({ name }) => name);
  for (const name of names) {
    const answer = await ask({ case: "fileContainingSymbol", value: name });
    if (answer.case !== "fileDescriptorResponse")
      throw new Error(`reflection answered ${answer.case} for ${name}`);
    for (const bytes of answer.value.fileDescriptorProto) {
      const file = fromBinary(FileDescriptorProtoSchema, bytes);
      files.set(file.name, file);
    }
  }
  const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: inOrder(files) }));
  return names.flatMap((name) => registry.getService(name)?.methods ?? []);
}

/** Each file after those that it imports. */
function inOrder(files: ReadonlyMap<string, FileDescriptorProto>): FileDescriptorProto[] {
  const ordered = new Set<FileDescriptorProto>();
  const add = (name: string) => {
    const file = files.get(name);
    if (file === undefined || ordered.has(file)) return;
    file.dependency.forEach(add);
    ordered.add(file);
  };
  for (const name of files.keys()) add(name);
  return [...ordered];
}

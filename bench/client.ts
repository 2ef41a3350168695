import type {
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";

const MIB = 1024 * 1024;

/** A grpc-js client over the generated messages, so that it is not what is measured. */
export class BenchClient {
  readonly #grpc: grpc.Client;

  constructor(address: string) {
    this.#grpc = new grpc.Client(address, grpc.credentials.createInsecure(), {
      "grpc.max_receive_message_length": 64 * MIB,
      "grpc-node.flow_control_window": 4 * MIB,
    });
  }

  unary<I extends DescMethodUnary["input"], O extends DescMethodUnary["output"]>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    return new Promise((resolve, reject) => {
      this.#grpc.makeUnaryRequest(
        pathOf(method),
        (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
        (bytes) => fromBinary(method.output, bytes),
        create(method.input, request),
        (error, answer) => (error ? reject(error) : resolve(answer as MessageShape<O>)),
      );
    });
  }

  stream<I extends DescMethodServerStreaming["input"], O extends DescMethodServerStreaming["output"]>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
  ): grpc.ClientReadableStream<MessageShape<O>> {
    return this.#grpc.makeServerStreamRequest(
      pathOf(method),
      (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
      (bytes) => fromBinary(method.output, bytes),
      create(method.input, request),
    );
  }

  /** A call that streams requests; resolves with its answer through `answer`. */
  upload<I extends DescMethod["input"], O extends DescMethod["output"]>(method: {
    readonly input: I;
    readonly output: O;
    readonly name: string;
    readonly parent: DescMethod["parent"];
  }): {
    readonly call: grpc.ClientWritableStream<MessageShape<I>>;
    readonly answer: Promise<MessageShape<O>>;
  } {
    const { promise, resolve, reject } = Promise.withResolvers<MessageShape<O>>();
    const call = this.#grpc.makeClientStreamRequest(
      pathOf(method),
      (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
      (bytes) => fromBinary(method.output, bytes),
      (error, answer) => (error ? reject(error) : resolve(answer as MessageShape<O>)),
    );
    return { call, answer: promise };
  }

  close(): void {
    this.#grpc.close();
  }
}

function pathOf(method: { readonly name: string; readonly parent: { readonly typeName: string } }): string {
  return `/${method.parent.typeName}/${method.name}`;
}

import { once } from "node:events";
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

/** A grpc-js client for the generated messages, used so that Berth's own client is not part of the measurement. */
export class BenchClient {
  readonly #grpc: grpc.Client;

  constructor(address: string) {
    this.#grpc = new grpc.Client(address, grpc.credentials.createInsecure(), {
      "grpc.max_receive_message_length": 64 * MIB,
      "grpc-node.flow_control_window": 8 * MIB,
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

  /** A call that streams requests, as fast as the server accepts them. */
  upload<I extends DescMethod["input"], O extends DescMethod["output"]>(method: {
    readonly input: I;
    readonly output: O;
    readonly name: string;
    readonly parent: DescMethod["parent"];
  }): Upload<I, O> {
    const { promise, resolve, reject } = Promise.withResolvers<MessageShape<O>>();
    const call = this.#grpc.makeClientStreamRequest(
      pathOf(method),
      (message: Buffer) => message,
      (bytes) => fromBinary(method.output, bytes),
      (error, answer) => (error ? reject(error) : resolve(answer as MessageShape<O>)),
    );
    const send = async (encoded: Buffer): Promise<void> => {
      if (call.write(encoded)) return;
      // A failed call emits no more "drain".
      await Promise.race([once(call, "drain"), promise]);
    };
    const encode = (init: MessageInitShape<I>): Buffer => {
      const { buffer, byteOffset, length } = toBinary(method.input, create(method.input, init));
      return Buffer.from(buffer, byteOffset, length);
    };
    return { encode, send, end: () => call.end(), answer: promise };
  }

  close(): void {
    this.#grpc.close();
  }
}

/** A call that streams requests. */
export interface Upload<I extends DescMethod["input"], O extends DescMethod["output"]> {
  /** Encodes a message, which can be sent any number of times: encoding takes longer than receiving. */
  encode(request: MessageInitShape<I>): Buffer;
  /** Resolves when more may be sent. Rejects if the call has failed. */
  send(encoded: Buffer): Promise<void>;
  end(): void;
  readonly answer: Promise<MessageShape<O>>;
}

/** The path of a method: `/package.Service/Method`. */
export function pathOf(method: {
  readonly name: string;
  readonly parent: { readonly typeName: string };
}): string {
  return `/${method.parent.typeName}/${method.name}`;
}

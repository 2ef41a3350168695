package interop;

import berth.v1.ErrorDetail;
import berth.v1.ExecRequest;
import berth.v1.ExecResponse;
import berth.v1.GetSandboxRequest;
import berth.v1.ProcessServiceGrpc;
import berth.v1.RunCommandRequest;
import berth.v1.RunCommandResponse;
import berth.v1.SandboxServiceGrpc;
import com.google.gson.Gson;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Makes one call of the interop table with grpc-java, and prints what came of it as JSON. */
public final class Main {
  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    try {
      System.out.println(new Gson().toJson(call(channel, arguments[1], arguments[2], arguments[3])));
    } finally {
      channel.shutdown().awaitTermination(10, TimeUnit.SECONDS);
    }
  }

  private static Map<String, ?> call(ManagedChannel channel, String sandbox, String cell, String argument)
      throws Exception {
    var processes = ProcessServiceGrpc.newBlockingStub(channel);
    ExecRequest exec = ExecRequest.newBuilder().setSandboxId(sandbox).setShell(argument).build();
    switch (cell) {
      case "unary":
        RunCommandResponse answer = processes.runCommand(command(sandbox, argument));
        return Map.of(
            "stdout", answer.getStdout().toStringUtf8(), "exitCode", answer.getExitStatus().getExitCode());
      case "stream":
        return read(processes.exec(exec));
      case "reason":
        try {
          SandboxServiceGrpc.newBlockingStub(channel)
              .getSandbox(GetSandboxRequest.newBuilder().setSandboxId(argument).build());
          throw new IllegalStateException("the call did not fail");
        } catch (StatusRuntimeException error) {
          ErrorDetail detail =
              StatusProto.fromThrowable(error).getDetails(0).unpack(ErrorDetail.class);
          return Map.of(
              "code", error.getStatus().getCode().value(),
              "reason", detail.getReasonValue(),
              "metadata", detail.getMetadataMap());
        }
      case "deadline":
        try {
          read(processes.withDeadlineAfter(2, TimeUnit.SECONDS).exec(exec));
          return Map.of("code", 0);
        } catch (StatusRuntimeException error) {
          return Map.of("code", error.getStatus().getCode().value());
        }
      case "cancel":
        return cancel(processes, exec);
      case "parallel":
        return Map.of("outputs", parallel(channel, sandbox, argument));
      default:
        throw new IllegalArgumentException("unknown cell " + cell);
    }
  }

  private static RunCommandRequest command(String sandbox, String shell) {
    return RunCommandRequest.newBuilder().setSandboxId(sandbox).setShell(shell).build();
  }

  private static Map<String, ?> read(Iterator<ExecResponse> stream) throws Exception {
    MessageDigest hash = MessageDigest.getInstance("SHA-256");
    long bytes = 0;
    int exitCode = -1;
    while (stream.hasNext()) {
      ExecResponse response = stream.next();
      if (response.hasOutput()) {
        bytes += response.getOutput().getData().size();
        hash.update(response.getOutput().getData().asReadOnlyByteBuffer());
      } else if (response.hasExited()) {
        exitCode = response.getExited().getExitCode();
      }
    }
    return Map.of("bytes", bytes, "sha256", HexFormat.of().formatHex(hash.digest()), "exitCode", exitCode);
  }

  private static Map<String, ?> cancel(ProcessServiceGrpc.ProcessServiceBlockingStub processes, ExecRequest exec)
      throws Exception {
    try (Context.CancellableContext context = Context.current().withCancellation()) {
      return context.call(
          () -> {
            Iterator<ExecResponse> stream = processes.exec(exec);
            while (!stream.next().hasOutput()) {}
            context.cancel(null);
            try {
              while (stream.hasNext()) stream.next();
              return Map.of("code", 0);
            } catch (StatusRuntimeException error) {
              return Map.of("code", error.getStatus().getCode().value());
            }
          });
    }
  }

  private static List<String> parallel(ManagedChannel channel, String sandbox, String shell) throws Exception {
    var processes = ProcessServiceGrpc.newFutureStub(channel);
    var calls = new ArrayList<com.google.common.util.concurrent.ListenableFuture<RunCommandResponse>>();
    for (int index = 0; index < 100; index++) {
      calls.add(processes.runCommand(command(sandbox, shell + " " + index)));
    }
    var outputs = new ArrayList<String>();
    for (var call : calls) outputs.add(call.get().getStdout().toStringUtf8());
    return outputs;
  }
}

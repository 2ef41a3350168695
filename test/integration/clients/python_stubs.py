"""Uses the generated Python stubs like a client and prints what it found.

Run by python-stubs.test.ts with gen/python on the path.
"""

import importlib
import json
import pkgutil
from concurrent import futures

import grpc
from google.protobuf.struct_pb2 import Struct

import berth.v1
from berth.v1 import sandbox_pb2, sandbox_pb2_grpc, session_pb2


def modules():
    """Every generated module, by its short name."""
    names = sorted(module.name for module in pkgutil.iter_modules(berth.v1.__path__))
    return {name: importlib.import_module(f"berth.v1.{name}") for name in names}


def services(found):
    """The RPCs that each service's stub has on a channel."""
    offered = {}
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        for name, module in found.items():
            descriptor = getattr(module, "DESCRIPTOR", None)
            for service in descriptor.services_by_name.values() if descriptor else ():
                stub = getattr(found[f"{name}_grpc"], f"{service.name}Stub")(channel)
                offered[service.name] = sorted(vars(stub))
    return offered


class Servicer(sandbox_pb2_grpc.SandboxServiceServicer):
    """Implements two RPCs, one of them streaming."""

    def GetSandbox(self, request, context):
        return sandbox_pb2.GetSandboxResponse(sandbox={"sandbox_id": request.sandbox_id})

    def WatchEvents(self, request, context):
        for sequence in range(request.after_sequence + 1, 4):
            yield sandbox_pb2.WatchEventsResponse(event={"sequence": sequence})


def calls():
    """What a client gets from a server, both using the stubs."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    sandbox_pb2_grpc.add_SandboxServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
            answer = stub.GetSandbox(sandbox_pb2.GetSandboxRequest(sandbox_id="käfig"), timeout=60)
            events = stub.WatchEvents(sandbox_pb2.WatchEventsRequest(after_sequence=1), timeout=60)
            return {
                "sandbox_id": answer.sandbox.sandbox_id,
                "sequences": [item.event.sequence for item in events],
            }
    finally:
        server.stop(None).wait()


def round_trip():
    """Serializes a request with a Struct and parses it again."""
    params = Struct()
    params.update({"x": 100, "keys": ["ctrl", "c"]})
    request = session_pb2.ExecuteToolRequest(worker_id="w", tool="vm:hotkey", params=params)
    read = session_pb2.ExecuteToolRequest.FromString(request.SerializeToString())
    return {"tool": read.tool, "x": read.params["x"], "keys": list(read.params["keys"])}


if __name__ == "__main__":
    found = modules()
    print(
        json.dumps(
            {
                "modules": list(found),
                "services": services(found),
                "calls": calls(),
                "round_trip": round_trip(),
                "presence": session_pb2.ToolMeta(temporary_session=False).HasField("temporary_session"),
            }
        )
    )

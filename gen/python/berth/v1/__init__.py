"""Messages and gRPC stubs of the package berth.v1."""

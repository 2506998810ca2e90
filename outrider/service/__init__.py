"""The door: one ASGI application with the HTTP API, gRPC, auth and metrics; the remote client."""

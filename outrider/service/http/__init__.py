"""The HTTP API: JSON in and out, problem details for every error.

    request -> app (limits, key) -> Starlette's routes -> endpoint (role, body) -> store or frontier -> JSON

`endpoint` is what all of them have in common, `wire` the records that travel; the other modules hold the endpoints
themselves, and `openapi` describes them from the same table by which they are served.
"""

"""How long a client waits: the `grpc-timeout` field."""

import re

from outrider.service.grpc.status import GrpcError, Status

_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_FORM = re.compile(r"(\d{1,8})([HMSmun])", re.ASCII)


def timeout_seconds(field: str | None) -> float | None:
    """Read a `grpc-timeout`; None where the client waits for ever.

    >>> timeout_seconds("250m"), timeout_seconds("2H"), timeout_seconds(None)
    (0.25, 7200.0, None)
    """
    if field is None:
        return None
    form = _FORM.fullmatch(field)
    if form is None:
        raise GrpcError(
            Status.INTERNAL, f"grpc-timeout {field[:20]!r} is not up to eight digits and one of H M S m u n"
        )
    return int(form[1]) * _SECONDS[form[2]]

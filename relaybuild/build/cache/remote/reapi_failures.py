"""What a gRPC status means to a cache: one of the reasons of a `RemoteFailure`; calls nothing.

A status that the client's own library made up (no connection, no answer) has the same codes as one that a server sent,
and differs in its sentence only.
"""

from __future__ import annotations

from relaybuild.build.cache.remote.reapi_messages import read_status
from relaybuild.build.cache.remote.transport import Reason, RemoteFailure
from relaybuild.build.cache.wire import WireError

_BY_CODE = {
    "DEADLINE_EXCEEDED": Reason.TIMEOUT,
    "UNAVAILABLE": Reason.BROKEN,
    "CANCELLED": Reason.BROKEN,
    "RESOURCE_EXHAUSTED": Reason.BUSY,
    "UNAUTHENTICATED": Reason.REFUSED,
    "PERMISSION_DENIED": Reason.REFUSED,
    "UNIMPLEMENTED": Reason.PROTOCOL,
    "INVALID_ARGUMENT": Reason.PROTOCOL,
}
_BY_PHRASE = {
    "failed parsing http/2": Reason.PROTOCOL,
    "failed to connect": Reason.CONNECT,
    "dns resolution": Reason.CONNECT,
    "errors resolving": Reason.CONNECT,
    "handshake": Reason.CONNECT,
    "http1.x server": Reason.PROTOCOL,
    "http2 header with status: 503": Reason.BUSY,
    "http2 header with status: 429": Reason.BUSY,
    "http2 header with status": Reason.PROTOCOL,
    "message larger than max": Reason.TOO_LARGE,
    "deadline exceeded": Reason.TIMEOUT,
    "rst_stream": Reason.BROKEN,
    "stream removed": Reason.BROKEN,
    "goaway": Reason.BROKEN,
}
"""What the library says itself; the first one that occurs decides."""

_MAX_DETAIL = 300


class GrpcFailure(RemoteFailure):
    """A call ended with a status other than OK; `code` is its name."""

    def __init__(self, code: str, reason: Reason, detail: str, retry_after: float | None = None) -> None:
        super().__init__(reason, detail, retry_after)
        self.code = code


def failure_of(code: str, detail: str, status: bytes = b"") -> GrpcFailure:
    """The failure for the name of a status code, its sentence, and the encoded `google.rpc.Status` where one came."""
    retry_after = _retry_after(status)
    reason = _BY_CODE.get(code, Reason.SERVER)
    lowered = detail.lower()
    for phrase, meaning in _BY_PHRASE.items():
        if phrase in lowered:
            reason = meaning
            break
    else:
        if code == "UNAVAILABLE" and retry_after is not None:
            reason = Reason.BUSY
    return GrpcFailure(code, reason, f"{code}: {' '.join(detail.split())[:_MAX_DETAIL]}", retry_after)


def _retry_after(status: bytes) -> float | None:
    try:
        return read_status(status).retry_after
    except WireError:
        return None

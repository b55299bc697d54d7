"""OpenTelemetry over Arrow Flight: spans of calls, whose context travels in headers as W3C's Trace Context has it.

>>> offpath.telemetry.start()
>>> pyarrow.flight.connect(location, middleware=[ClientTracing()])

Servers have ``ServerTracing``, so that a client's span is the parent of the server's. Both do nothing while
``offpath.telemetry`` is off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow.flight as fl

from . import telemetry

NAME = "tracing"  # of the server's middleware
SERVICE = "arrow.flight.protocol.FlightService"
METHODS = {
    fl.FlightMethod.HANDSHAKE: "Handshake",
    fl.FlightMethod.LIST_FLIGHTS: "ListFlights",
    fl.FlightMethod.GET_FLIGHT_INFO: "GetFlightInfo",
    fl.FlightMethod.GET_SCHEMA: "GetSchema",
    fl.FlightMethod.DO_GET: "DoGet",
    fl.FlightMethod.DO_PUT: "DoPut",
    fl.FlightMethod.DO_ACTION: "DoAction",
    fl.FlightMethod.LIST_ACTIONS: "ListActions",
    fl.FlightMethod.DO_EXCHANGE: "DoExchange",
}


def call_span(tracing: telemetry.Tracing, info: Any, kind: str, parent: Any = None) -> Any:
    """The span of one call."""
    method = METHODS.get(info.method, "Unknown")
    attributes = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": method}
    return tracing.begin(f"{SERVICE}/{method}", kind, attributes, parent)


class ClientTracing(fl.ClientMiddlewareFactory):
    """For ``pyarrow.flight.connect(…, middleware=[…])``: a span of each call, which the server's span names as its
    parent."""

    def start_call(self, info: Any) -> ClientCall | None:
        """Called by Flight at the beginning of each call."""
        tracing = telemetry.current()
        return None if tracing is None else ClientCall(tracing, call_span(tracing, info, "CLIENT"))


class ClientCall(fl.ClientMiddleware):
    """One call of a client."""

    def __init__(self, tracing: telemetry.Tracing, span: Any) -> None:
        self._tracing, self._span = tracing, span

    def sending_headers(self) -> dict[str, str]:
        """The context of the span, as OTEL_PROPAGATORS says."""
        from opentelemetry.propagate import inject

        headers: dict[str, str] = {}
        inject(headers, self._tracing.trace.set_span_in_context(self._span))
        return headers

    def call_completed(self, exception: BaseException | None) -> None:
        """Called by Flight at the end of the call."""
        self._tracing.ended(self._span, exception)


class ServerTracing(fl.ServerMiddlewareFactory):
    """For ``pyarrow.flight.FlightServerBase(…, middleware={flight_tracing.NAME: …})``. Behind the check of a token, so
    that strangers cause no spans."""

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> ServerCall | None:
        """Called by Flight at the beginning of each call."""
        if (tracing := telemetry.current()) is None:
            return None
        from opentelemetry.propagate import extract

        texts = {name.lower(): [each for each in values if isinstance(each, str)] for name, values in headers.items()}
        return ServerCall(tracing, call_span(tracing, info, "SERVER", extract(texts)))


class ServerCall(fl.ServerMiddleware):
    """One call at a server."""

    def __init__(self, tracing: telemetry.Tracing, span: Any) -> None:
        self._tracing, self._span = tracing, span

    def inside(self) -> contextlib.AbstractContextManager[Any]:
        """Spans of the server's work for the call have the call's span as their parent."""
        return self._tracing.trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def call_completed(self, exception: BaseException | None) -> None:
        """Called by Flight at the end of the call."""
        self._tracing.ended(self._span, exception)


@contextlib.contextmanager
def inside(context: Any) -> Iterator[None]:
    """Within a call of a server that has ServerTracing: ``context`` is the call's, as Flight gives it."""
    call = context.get_middleware(NAME)
    with call.inside() if call is not None else contextlib.nullcontext():
        yield

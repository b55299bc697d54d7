"""OpenTelemetry: a span for each send, step end, put, get and query of this process, and for waits for credit.

Spans are off until ``start`` replaces the methods below by ones that record; a program without spans calls the plain
methods and pays nothing. ``connect`` starts them if the environment names an exporter (``is_configured``). Names and
attributes follow OpenTelemetry's conventions for messaging (streams) and databases (pools and tracks).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

from .errors import Unsupported, WouldBlock
from .extras import missing
from .frame import Frame
from .pool import Pool
from .stream import Key, Stream, Ticket
from .tracks import Tracks

# Makes the method that records from the plain one.
Recording = Callable[["Tracing", Callable[..., Any]], Callable[..., Any]]

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

GRPC = "opentelemetry-exporter-otlp-proto-grpc"  # the package, for those who ask for this protocol
KEYS = ("function", "row", "column", "rows", "columns_glob")  # arguments that become attributes, if they are given

_changing = threading.Lock()
_looked = False  # at the environment
_tracing: Tracing | None = None


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """The environment asks for spans: OTEL_TRACES_EXPORTER has ``otlp``, or is not set and an OTLP endpoint is."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporters := environment.get("OTEL_TRACES_EXPORTER", ""):
        return "otlp" in [each.strip() for each in exporters.split(",")]
    return any(environment.get(name) for name in ENDPOINTS)


def start_if_configured() -> None:
    """Starts spans once for this process if the environment asks for them; warns if OpenTelemetry is not installed."""
    global _looked
    with _changing:
        if _looked:
            return
        _looked = True
    if is_configured():
        try:
            start()
        except Unsupported as error:
            warnings.warn(f"the environment asks for OpenTelemetry's spans: {error}", RuntimeWarning, stacklevel=3)


def start(provider: Any = None) -> None:
    """Records spans of all sessions of this process from now on.

    ``provider``: a TracerProvider of OpenTelemetry. None: the one that the program has set; without one, spans go to
    the OTLP endpoint that the environment names (``OTEL_EXPORTER_OTLP_ENDPOINT``; by default http://localhost:4318).

    Raises Unsupported if OpenTelemetry is not installed.
    """
    global _tracing
    with _changing:
        if _tracing is not None:
            if provider is None:
                return
            _tracing.end()
            _tracing = None
        try:
            _tracing = Tracing(provider)
        except ImportError as error:
            package = str(error.name)
            needed = (
                f"{package} is not installed: pip install {GRPC}" if "grpc" in package else missing(package, "otel")
            )
            raise Unsupported(needed) from None


def stop() -> None:
    """Stops recording spans. Spans of an exporter that ``start`` made are sent before this returns."""
    global _tracing
    with _changing:
        if _tracing is not None:
            _tracing.end()
        _tracing = None


def current() -> Tracing | None:
    """The recorder of spans; None while they are off."""
    return _tracing


class Tracing:
    """Spans of this process: the tracer, and the methods that record in place of the plain ones."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace

        self.trace = trace
        self._own_provider: Any = None
        if provider is None and isinstance(provider := trace.get_tracer_provider(), trace.ProxyTracerProvider):
            provider = self._own_provider = exporting_provider()
        self.tracer: Any = provider.get_tracer("offpath")
        self._plain: list[tuple[type, str, Any]] = []
        for owner, name, recording in METHODS:
            plain = vars(owner)[name]
            setattr(owner, name, functools.wraps(plain)(recording(self, plain)))
            self._plain.append((owner, name, plain))

    def end(self) -> None:
        """Restores the plain methods, and sends the remaining spans of an exporter of its own."""
        for owner, name, plain in self._plain:
            setattr(owner, name, plain)
        if self._own_provider is not None:
            self._own_provider.shutdown()

    def begin(self, name: str, kind: str, attributes: dict[str, Any], parent: Any = None) -> Any:
        """A span that its owner ends. ``kind`` is a name of OpenTelemetry's SpanKind, ``parent`` a context of
        OpenTelemetry's; None: the current one."""
        return self.tracer.start_span(name, parent, kind=self.trace.SpanKind[kind], attributes=attributes)

    @contextlib.contextmanager
    def inside(self, span: Any) -> Iterator[Any]:
        """The span is the current one, and ends with its error or well."""
        error: BaseException | None = None
        with self.trace.use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except BaseException as raised:
                error = raised
                raise
            finally:
                self.ended(span, error)

    def ended(self, span: Any, error: BaseException | None) -> None:
        """Ends the span, with its error."""
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(self.trace.StatusCode.ERROR, str(error))
        span.end()


def exporting_provider() -> Any:
    """A provider of its own that sends spans in batches, from a thread of OpenTelemetry's; no send waits for it."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter: Any  # of one of two packages
    if next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "") == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        exporter = GrpcExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def messaging_span(tracing: Tracing, stream: Stream, operation: str, key: Key) -> Any:
    row, column = (key, "") if isinstance(key, str) else key
    attributes = {
        "messaging.system": "offpath",
        "messaging.operation.name": operation,
        "messaging.operation.type": "send",
        "messaging.destination.name": stream.pool_name,
        "offpath.stream": stream.name,
        "offpath.row": row,
        "offpath.column": column,
    }
    return tracing.begin(f"{operation} {stream.pool_name}", "PRODUCER", attributes)


def database_span(tracing: Tracing, operation: str, asked: Mapping[str, Any]) -> Any:
    """``asked`` are the arguments of a method of a pool or of tracks, by name."""
    name = asked["self"].name
    attributes = {"db.system.name": "offpath", "db.collection.name": name, "db.operation.name": operation}
    for each in KEYS:
        if asked.get(each):
            attributes[f"offpath.{each}"] = asked[each]
    return tracing.begin(f"{operation} {name}", "CLIENT", attributes)


def add_answer(span: Any, answer: Any) -> None:
    """The result, if it is an object of a pool."""
    if isinstance(answer, Frame):
        span.set_attribute("offpath.bytes", answer.nbytes)
        if answer.rows is not None:
            span.set_attribute("db.response.returned_rows", answer.rows)


def arguments_of(method: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
    """Gives the arguments of a call of the method by their names."""
    signature = inspect.signature(method)
    return lambda *given, **named: signature.bind(*given, **named).arguments


def recording_send(tracing: Tracing, plain: Callable[..., Ticket]) -> Callable[..., Ticket]:
    def send(stream: Stream, data: Any, key: Key | None = None, *, wait: bool = True, **how: Any) -> Ticket:
        key = stream._next_key() if key is None else key
        with tracing.inside(messaging_span(tracing, stream, "send", key)) as span:
            try:
                ticket = plain(stream, data, key, wait=False, **how)
            except WouldBlock as error:
                if not wait:
                    raise
                waits = tracing.begin("wait for credit", "INTERNAL", {"offpath.reason": str(error)})
                with tracing.inside(waits):
                    ticket = plain(stream, data, key, wait=True, **how)
            span.set_attribute("offpath.ticket", ticket.number)
        return ticket

    return send


def recording_post(tracing: Tracing, plain: Callable[..., Ticket]) -> Callable[..., Ticket]:
    """Of a stream's other methods that post."""
    arguments = arguments_of(plain)

    def post(*given: Any, **named: Any) -> Ticket:
        asked = arguments(*given, **named)
        key = asked["row"] if "row" in asked else asked["key"]
        with tracing.inside(messaging_span(tracing, asked["self"], plain.__name__, key)) as span:
            ticket = plain(*given, **named)
            span.set_attribute("offpath.ticket", ticket.number)
        return ticket

    return post


def recording_request(operation: str) -> Recording:
    """Of methods that wait for their answer."""

    def recording(tracing: Tracing, plain: Callable[..., Any]) -> Callable[..., Any]:
        arguments = arguments_of(plain)

        def request(*given: Any, **named: Any) -> Any:
            with tracing.inside(database_span(tracing, operation, arguments(*given, **named))) as span:
                answer = plain(*given, **named)
                add_answer(span, answer)
            return answer

        return request

    return recording


def recording_future(operation: str) -> Recording:
    """Of methods that return a future: the span ends with it."""

    def recording(tracing: Tracing, plain: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
        arguments = arguments_of(plain)

        def request(*given: Any, **named: Any) -> Future[Any]:
            span = database_span(tracing, operation, arguments(*given, **named))

            def end(future: Future[Any]) -> None:
                error = CancelledError("cancelled") if future.cancelled() else future.exception()
                if error is None:
                    add_answer(span, future.result())
                tracing.ended(span, error)

            try:
                with tracing.trace.use_span(span, record_exception=False, set_status_on_exception=False):
                    future = plain(*given, **named)
            except BaseException as error:
                tracing.ended(span, error)
                raise
            future.add_done_callback(end)
            return future

        return request

    return recording


def recording_answer(tracing: Tracing, plain: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Of the frames or tables of a query. The span lasts until the last one is taken, and is never the current one:
    between two of them its reader does other things."""
    arguments = arguments_of(plain)

    def answer(*given: Any, **named: Any) -> Iterator[Any]:
        span = database_span(tracing, "query", arguments(*given, **named))
        error: BaseException | None = None
        rows = 0
        try:
            for each in plain(*given, **named):
                rows += (each.rows or 0) if isinstance(each, Frame) else each.num_rows
                yield each
        except GeneratorExit:  # its reader has enough
            raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            span.set_attribute("db.response.returned_rows", rows)
            tracing.ended(span, error)

    return answer


# The replaced methods and their replacements.
METHODS: tuple[tuple[type, str, Recording], ...] = (
    (Stream, "send", recording_send),
    (Stream, "move", recording_post),
    (Stream, "step_end", recording_post),
    (Pool, "put_object", recording_request("put")),
    (Pool, "put_async", recording_future("put")),
    (Pool, "get_frame", recording_request("get")),
    (Pool, "want", recording_future("get")),
    (Pool, "_answer", recording_answer),
    (Pool, "query_async", recording_future("query")),
    (Pool, "compute", recording_request("compute")),
    (Pool, "compute_async", recording_future("compute")),
    (Tracks, "_read", recording_request("get")),
    (Tracks, "_answer", recording_answer),
)

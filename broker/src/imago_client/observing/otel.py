"""Traces of OpenTelemetry through messages: `ClientConfig(interceptors=(OpenTelemetry(),))`.

Needs the extra `imago-mq[otel]`. The names follow its conventions for messaging.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

try:
    from opentelemetry import context, propagate, trace
except ImportError as error:
    raise ImportError(
        "imago_client.observing.otel needs OpenTelemetry: pip install 'imago-mq[otel]'"
    ) from error

from imago_client.observing.interceptors import Interceptor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from imago_client.messages import Message
    from imago_client.received import ReceivedMessage


class _Begun(NamedTuple):
    span: Span
    token: object


class OpenTelemetry(Interceptor):
    """A span `create TOPIC` for each message sent, whose context travels in its properties, and one
    `process TOPIC` around each call of a push consumer's handler.

    Who asks for messages himself begins a span in `OpenTelemetry.context_of(message)`.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("imago_client", tracer_provider=provider)

    @staticmethod
    def context_of(message: ReceivedMessage) -> Context:
        """Return the context in which a message was sent; an empty one where it brings none."""
        return propagate.extract(message.properties, context=context.Context())

    def before_send(self, message: Message) -> Message:
        """Return the message with the context of its span in its properties."""
        carried: dict[str, str] = {}
        span = self._tracer.start_span(
            f"create {message.topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes={
                **_common(message.topic, "create"),
                "messaging.message.body.size": len(message.body),
            },
        )
        propagate.inject(carried, context=trace.set_span_in_context(span))
        span.end()
        return replace(message, properties={**message.properties, **carried})

    def before_handle(self, group: str, messages: Sequence[ReceivedMessage]) -> _Begun:
        """Begin a span that the handler finds as the current one."""
        topic = messages[0].topic
        sent_in = [self.context_of(message) for message in messages]
        found = [trace.get_current_span(one).get_span_context() for one in sent_in]
        span = self._tracer.start_span(
            f"process {topic}",
            context=sent_in[0] if len(messages) == 1 else context.Context(),
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(one) for one in found if one.is_valid],
            attributes={
                **_common(topic, "process"),
                "messaging.consumer.group.name": group,
                "messaging.batch.message_count": len(messages),
                "messaging.message.id": messages[0].message_id,
            },
        )
        return _Begun(span, context.attach(trace.set_span_in_context(span)))

    def after_handle(self, begun: object, error: BaseException | None) -> None:
        """End the span, with the error of the handler."""
        if not isinstance(begun, _Begun):
            return
        if error is not None:
            begun.span.record_exception(error)
            begun.span.set_status(trace.StatusCode.ERROR, type(error).__name__)
        begun.span.end()
        context.detach(begun.token)  # type: ignore[arg-type]  # what attach returned


def _common(topic: str, operation: str) -> dict[str, str]:
    return {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }

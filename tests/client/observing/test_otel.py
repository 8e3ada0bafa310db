"""Traces of OpenTelemetry go with messages, from the send to the handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from imago_client import Client, ClientConfig, ConsumerConfig, Message
from imago_client.observing.otel import OpenTelemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from imago_client import ReceivedMessage


def recording() -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


async def test_a_handler_runs_within_the_trace_of_the_send(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("orders", queues=1)
    provider, exporter = recording()
    seen: list[tuple[int, int]] = []
    done = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        current = trace.get_current_span().get_span_context()
        sent_in = trace.get_current_span(OpenTelemetry.context_of(messages[0]))
        seen.append((current.trace_id, sent_in.get_span_context().span_id))
        done.set()
        raise ValueError("mine")

    settings = ClientConfig(bootstrap=(bootstrap,), interceptors=(OpenTelemetry(provider),))
    async with Client(settings) as traced:
        with provider.get_tracer("app").start_as_current_span("request") as request:
            await traced.producer().send(Message("orders", b"x", properties={"own": "1"}))
        config = ConsumerConfig(group="g", start_from="earliest")
        async with traced.push_consumer(config, ["orders"], handle), asyncio.timeout(50):
            await done.wait()
    spans: dict[str, ReadableSpan] = {span.name: span for span in exporter.get_finished_spans()}
    created, processed = spans["create orders"], spans["process orders"]
    assert created.parent is not None
    assert created.parent.span_id == request.get_span_context().span_id
    assert processed.parent is not None
    assert processed.parent.span_id == created.context.span_id
    assert seen[0] == (request.get_span_context().trace_id, created.context.span_id)
    assert processed.status.status_code is trace.StatusCode.ERROR
    assert processed.attributes is not None
    assert processed.attributes["messaging.consumer.group.name"] == "g"
    assert not trace.get_current_span().get_span_context().is_valid

"""The RabbitMQ example, where a server answers on this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import uuid
from pathlib import Path

import pytest

import batchkit as bk

URL = "amqp://guest:guest@localhost/"


def _is_served() -> bool:
    try:
        socket.create_connection(("localhost", 5672), timeout=1).close()
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _is_served(), reason="no RabbitMQ on localhost:5672")
aio_pika = pytest.importorskip("aio_pika")


@pytest.fixture(scope="module")
def example():
    path = Path(__file__).parent.parent / "examples" / "rabbitmq.py"
    spec = importlib.util.spec_from_file_location("rabbitmq_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def served(example, collector, texts):
    queue, stop = f"batchkit-test-{uuid.uuid4()}", asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(example.consume(URL, queue, collector, stop))
        answers = await asyncio.wait_for(example.ask(URL, queue, texts), 20)
        stop.set()
    return answers


def test_messages_are_answered_in_batches(example):
    """Every message gets its own answer, and far fewer batches than messages are asked."""
    collector = bk.RunnableBatch(batch_fn=lambda texts: [text.upper() for text in texts], max_batch_size=16)
    texts = [f"message {number}" for number in range(100)]
    assert asyncio.run(served(example, collector, texts)) == [text.upper() for text in texts]
    assert max(collector.stats.batch_sizes) > 1


def test_a_message_is_acknowledged_only_after_its_answer(example):
    """A message whose batch failed goes back to the queue and is answered later."""
    failed = []

    def fails_once(texts):
        if not failed:
            failed.append(texts)
            raise RuntimeError("no luck")
        return [text.upper() for text in texts]

    async def main():
        # aio-pika reports what a consumer's callback raised to the loop's log, which is as it should be.
        return await served(example, bk.RunnableBatch(batch_fn=fails_once), ["a", "b"])

    assert asyncio.run(main()) == ["A", "B"]
    assert failed

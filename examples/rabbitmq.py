"""Label messages from a RabbitMQ queue: they come one by one, batches are asked, each is acknowledged once answered.

``python examples/rabbitmq.py [amqp://guest:guest@localhost/]`` needs aio-pika, a RabbitMQ server and the embedded
model. A message that could not be answered goes back to the queue; a consumer that dies loses none.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Sequence

import aio_pika
import pandas as pd
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

import batchkit as bk

LABELS = {
    "billing": "payments, charges and invoices",
    "delivery": "shipping, tracking and late parcels",
    "defect": "cracked, broken or faulty item",
}
MESSAGES = [
    "I was charged twice for one order.",
    "My parcel has been on its way for three weeks.",
    "The handle broke off on the first day.",
    "Please send me an invoice for my payment.",
]


def label(texts: list[str]) -> list[str]:
    """One question for the whole batch."""
    labelled = pd.Series(texts).llm.classify(LABELS, route=bk.Embedded(), progress=False, details=False)
    return list(labelled)


async def answer(message: AbstractIncomingMessage, channel: AbstractChannel, collector: bk.RunnableBatch) -> None:
    """Answer one message; leaving the block acknowledges it, an error puts it back."""
    async with message.process(requeue=True):
        text = await collector.ainvoke(message.body.decode())
        reply = aio_pika.Message(text.encode(), correlation_id=message.correlation_id)
        await channel.default_exchange.publish(reply, routing_key=message.reply_to or "")


async def consume(url: str, queue_name: str, collector: bk.RunnableBatch, stop: asyncio.Event) -> None:
    """Answer messages until ``stop`` is set."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        # So many unacknowledged messages at once: fewer than a batch holds would keep batches small.
        await channel.set_qos(prefetch_count=256)
        queue = await channel.declare_queue(queue_name, auto_delete=True)
        tag = await queue.consume(functools.partial(answer, channel=channel, collector=collector))
        await stop.wait()
        await queue.cancel(tag)
        await collector.aclose()


async def ask(url: str, queue_name: str, texts: Sequence[str]) -> list[str]:
    """Send messages and collect their answers in order."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue(queue_name, auto_delete=True)
        replies = await channel.declare_queue(exclusive=True)
        for number, text in enumerate(texts):
            message = aio_pika.Message(text.encode(), correlation_id=str(number), reply_to=replies.name)
            await channel.default_exchange.publish(message, routing_key=queue_name)
        found: dict[str, str] = {}
        async with replies.iterator() as incoming:
            async for reply in incoming:
                await reply.ack()
                found[reply.correlation_id or ""] = reply.body.decode()
                if len(found) == len(texts):
                    break
        return [found[str(number)] for number in range(len(texts))]


async def main(url: str) -> None:
    collector = bk.RunnableBatch(batch_fn=label, max_batch_size=64, max_batch_time=0.1, max_waiting=1_000)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(consume(url, "batchkit-example", collector, stop))
        texts = MESSAGES * 25
        answers = await ask(url, "batchkit-example", texts)
        stop.set()
    for text, given in list(zip(texts, answers, strict=True))[: len(MESSAGES)]:
        print(f"{given:10} {text}")
    print(f"{len(answers)} messages in batches of {collector.stats.batch_sizes}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@localhost/"))

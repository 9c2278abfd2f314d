"""A server that costs next to nothing: it answers every POST with the same chat completion.

``python benchmarks/server.py`` listens on a free port of 127.0.0.1, prints it, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

CONTENT = '{"label":"billing","confidence":0.9}'
REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "bench",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": CONTENT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
}
BODY = json.dumps(REPLY).encode()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_1\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")


class Fixed(asyncio.Protocol):
    """Reads one request after the other off a connection and answers each."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (size := self._size()) is not None and len(self.buffer) >= size:
            self.buffer = self.buffer[size:]
            self.transport.write(ANSWER)

    def _size(self) -> int | None:
        """Bytes of the request at the front, None while its head is not there yet."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = LENGTH.search(self.buffer, 0, end + 2)
        return end + 4 + (int(length[1]) if length else 0)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Fixed, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())

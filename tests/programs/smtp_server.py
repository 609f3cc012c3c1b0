"""A server of the Simple Mail Transfer Protocol that keeps what it receives.

Source: RFC 5321, sections 3.1 to 3.3 and 4.1.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class Mailbox:
    """Messages that the server has accepted.

    Attributes:
        port: Port of the server.
        messages: Messages, in the order of their arrival.
        recipients: Recipients of each message, as the envelope names them.
    """

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)


async def _converse(box: Mailbox, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    def answer(line: str) -> None:
        writer.write(f"{line}\r\n".encode())

    answer("220 localhost")
    recipients: list[str] = []
    while line := await reader.readline():
        command = line.decode().strip()
        verb = command[:4].upper()
        if verb == "RCPT":
            recipients.append(command.partition(":")[2].strip("<> "))
        if verb == "DATA":
            answer("354 go on")
            content = await reader.readuntil(b"\r\n.\r\n")
            box.messages.append(message_from_bytes(content[:-3], policy=policy.default))  # type: ignore[arg-type]
            box.recipients.append(recipients)
            recipients = []
        answer("221 bye" if verb == "QUIT" else "250 done")
        await writer.drain()
        if verb == "QUIT":
            break
    writer.close()


@contextmanager
def serving() -> Iterator[Mailbox]:
    """Run a server on 127.0.0.1 for a `with` block."""
    box, begun, loop = Mailbox(), threading.Event(), asyncio.new_event_loop()

    async def run() -> None:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _converse(box, reader, writer)

        server = await asyncio.start_server(converse, "127.0.0.1", 0)
        box.port = server.sockets[0].getsockname()[1]
        begun.set()
        async with server:
            await over.wait()

    over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    begun.wait()
    try:
        yield box
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()

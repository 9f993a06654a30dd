"""The network between a mirror and a broker: a TCP proxy of this process that can be slow, silent, one-way or shut."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass

from mirrorlake.sandbox.ports import LOOPBACK

_CHUNK = 65_536
_LOOK_S = 0.05
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the network does now; bytes that do not pass are kept until they may, as TCP would send them again."""

    delay_s: float = 0.0
    bytes_per_s: int | None = None
    requests: bool = True
    answers: bool = True
    accepts: bool = True


FAIR = Weather()


class Proxy:
    """Pass bytes between a port and a broker on loopback as the weather allows; `weather` may be set at any time.

    Ends with its process.
    """

    def __init__(self, port: int, upstream_port: int) -> None:
        self.port = port
        self.weather = FAIR
        self._upstream_port = upstream_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        listens = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listens,), daemon=True, name=f"proxy-{port}")
        self._thread.start()
        assert listens.wait(10), f"the proxy does not listen on {port}"

    def reset(self) -> None:
        """Cut every connection, as a firewall that forgot them; what was under way is lost."""
        self._loop.call_soon_threadsafe(self._cut)

    def _run(self, listens: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, LOOPBACK, self.port))
        listens.set()
        self._loop.run_forever()

    def _cut(self) -> None:
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.weather.accepts:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self._upstream_port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, up_writer}
        self._writers |= ends
        pumps = [
            asyncio.ensure_future(self._pump(reader, up_writer, answers=False)),
            asyncio.ensure_future(self._pump(up_reader, writer, answers=True)),
        ]
        self._tasks.update(pumps)
        # Kafka's clients close both ways at once.
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._tasks.difference_update(pumps)
        self._writers -= ends
        for end in ends:
            end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(_CHUNK):
                while not (self.weather.answers if answers else self.weather.requests):
                    await asyncio.sleep(_LOOK_S)
                weather = self.weather
                if weather.delay_s:
                    await asyncio.sleep(weather.delay_s)
                if weather.bytes_per_s:
                    await asyncio.sleep(len(data) / weather.bytes_per_s)
                writer.write(data)
                await writer.drain()

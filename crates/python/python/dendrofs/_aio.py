"""Waiting in an event loop of asyncio."""

import asyncio
from typing import Any


async def wait(known: Any) -> None:
    """Waits until `known` is done, and returns or raises its result."""
    if not known.done():
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        loop.add_reader(known.fileno(), wake)
        try:
            await woken
        finally:
            loop.remove_reader(known.fileno())
    known.result()

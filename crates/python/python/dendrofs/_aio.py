"""Waiting in an event loop of asyncio."""

import asyncio
import os
from typing import Any


async def wait(known: Any) -> None:
    """Waits until `known` is done, and returns or raises its result."""
    if not known.done():
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        # A loop has one callback for a descriptor, so each task that waits has a descriptor.
        fd = os.dup(known.fileno())
        try:
            loop.add_reader(fd, wake)
            await woken
        finally:
            loop.remove_reader(fd)
            os.close(fd)
    known.result()

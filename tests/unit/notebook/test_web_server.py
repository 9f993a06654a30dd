"""The page's server, without a browser: kernels that end, and kernels that are counted while they start."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("voila", reason="the extra notebook is not installed")

from mirrorlake.notebook.web import server
from mirrorlake.notebook.web.server import MAX_KERNELS, Kernels


class Manager:
    """Kernels that start slowly; `closing` is closed by its page while another one ends."""

    def __init__(self, kernels: list[str], closing: str = "") -> None:
        self.kernels, self.closing, self.failing = dict.fromkeys(kernels, 0), closing, ""
        self.ended: list[str] = []

    def list_kernel_ids(self) -> list[str]:
        return list(self.kernels)

    def kernel_model(self, number: str) -> dict[str, Any]:
        return {"connections": self.kernels[number]}

    async def start_kernel(self, **_: Any) -> str:
        await asyncio.sleep(0.05)
        number = f"new-{len(self.kernels)}"
        self.kernels[number] = 1
        return number

    async def shutdown_kernel(self, number: str, *, now: bool) -> None:
        assert now
        self.kernels.pop(self.closing, None)
        await asyncio.sleep(0)
        if number == self.failing:
            raise RuntimeError("it does not end")
        del self.kernels[number]
        self.ended.append(number)


@pytest.fixture
def time_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(server, "_REAP_INTERVAL_S", 0.01)
    return now


def reap(manager: Manager, time_s: list[float], expected: list[str]) -> None:
    async def look() -> None:
        reaping = asyncio.create_task(Kernels(manager, "").reap())
        try:
            await asyncio.sleep(0.05)
            time_s[0] += 61
            while manager.ended != expected:
                assert not reaping.done(), "the reaper has died"
                await asyncio.sleep(0.01)
        finally:
            reaping.cancel()

    asyncio.run(asyncio.wait_for(look(), 10))


def test_kernels_whose_page_is_gone_end_also_if_another_page_is_closed_or_does_not_end(time_s: list[float]) -> None:
    reap(Manager(["a", "b", "c"], closing="b"), time_s, ["a", "c"])
    manager = Manager(["a", "b"])
    manager.failing = "a"
    reap(manager, time_s, ["b"])


def test_a_kernel_whose_console_takes_minutes_is_not_taken_for_one_of_a_closed_page(
    time_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager([])
    kernels = Kernels(manager, "")

    async def show(number: str) -> dict[str, Any]:
        manager.kernels[number] = 0
        for _ in range(5):
            time_s[0] += 61
            await asyncio.sleep(0.05)
        assert manager.ended == []
        return {}

    async def visit() -> None:
        reaping = asyncio.create_task(kernels.reap())
        await kernels.open()
        time_s[0] += 61
        while manager.ended != ["new-0"]:
            await asyncio.sleep(0.01)
        reaping.cancel()

    monkeypatch.setattr(kernels, "_show", show)
    asyncio.run(asyncio.wait_for(visit(), 10))


def test_pages_that_open_at_once_are_counted_before_their_kernels_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager([])
    kernels = Kernels(manager, "")

    async def show(_: str) -> dict[str, Any]:
        return {}

    async def visit() -> bool:
        if kernels.is_full:
            return False
        await kernels.open()
        return True

    async def visit_all() -> list[bool]:
        return await asyncio.gather(*(visit() for _ in range(MAX_KERNELS + 2)))

    monkeypatch.setattr(kernels, "_show", show)
    assert asyncio.run(visit_all()).count(True) == len(manager.kernels) == MAX_KERNELS


def test_a_kernel_that_cannot_start_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager([str(number) for number in range(MAX_KERNELS - 1)])
    kernels = Kernels(manager, "")

    async def fail(**_: Any) -> str:
        raise RuntimeError("no memory")

    monkeypatch.setattr(manager, "start_kernel", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        asyncio.run(kernels.open())
    assert not kernels.is_full

"""`mirrorlake console`: the link that it prints can be opened."""

from __future__ import annotations

import socket

import pytest

from mirrorlake.cli.commands.console import page_link


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("mirror-1", "mirror-1"),
        ("::1", "[::1]"),
        ("fe80::1", "[fe80::1]"),
        ("0.0.0.0", "here"),  # noqa: S104  what a person may write
        ("::", "here"),
    ],
)
def test_a_link_names_a_host_that_a_browser_understands(host: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    assert page_link(host, 8866, "t0ken") == f"http://{shown}:8866/?token=t0ken"

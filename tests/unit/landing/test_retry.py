"""What becomes of a landing query that failed because of its connection."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterUnreachable, LoginRefused
from mirrorlake.landing.retry import MOST_ATTEMPTS, await_retry, may_come_back

KAFKA = "org.apache.kafka.common.errors"
LOGIN = f"x\nCaused by: {KAFKA}.SaslAuthenticationException: Authentication failed: Invalid username or password"
TLS = f"x\nCaused by: {KAFKA}.SslAuthenticationException: SSL handshake failed\nCaused by: javax.net.ssl.SSLHandshakeException: no"


class Source:
    alias = "east"


def wait(text: str, attempts: int) -> None:
    stopped = threading.Event()
    stopped.set()
    await_retry(cast("Any", Source()), Exception(text), None, attempts, once=False, stop=stopped)


def test_a_refused_login_is_left_to_the_next_lander_which_resolves_the_secret_again() -> None:
    with pytest.raises(
        LoginRefused, match=r"cluster east: SASL fails while Java's client, inside Spark, reads it"
    ) as said:
        wait(LOGIN, 1)
    assert said.value.exit_code == 4
    assert "sasl.* settings under clusters.east.client" in said.value.remedy


def test_tls_that_fails_is_an_outage_at_first() -> None:
    wait(TLS, 1)
    with pytest.raises(
        ClusterUnreachable, match=r"TLS fails while Java's client, inside Spark, reads it: SSLHandshake"
    ):
        wait(TLS, MOST_ATTEMPTS + 1)


def test_a_start_waits_for_a_source_that_was_there_and_not_for_one_that_refuses_the_login() -> None:
    away = ClusterUnreachable("east does not answer")
    assert may_come_back(away, 1, once=False)
    assert not may_come_back(away, 0, once=False), "it never was there"
    assert not may_come_back(away, 1, once=True)
    assert not may_come_back(away, MOST_ATTEMPTS + 1, once=False)
    assert not may_come_back(LoginRefused("east: SASL fails"), 1, once=False), "with the same secret"

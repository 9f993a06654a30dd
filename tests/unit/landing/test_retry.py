"""What becomes of a landing query that failed because of its connection."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterUnreachable, LoginRefused
from mirrorlake.landing.retry import MAX_ATTEMPTS, retry_or_raise, should_wait_for_source

KAFKA = "org.apache.kafka.common.errors"
LOGIN = f"x\nCaused by: {KAFKA}.SaslAuthenticationException: Authentication failed: Invalid username or password"
TLS = f"x\nCaused by: {KAFKA}.SslAuthenticationException: SSL handshake failed\nCaused by: javax.net.ssl.SSLHandshakeException: no"


class Source:
    alias = "east"


def wait(text: str, attempts: int) -> None:
    stopped = threading.Event()
    stopped.set()
    retry_or_raise(cast("Any", Source()), Exception(text), None, attempts, once=False, stop=stopped)


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
        wait(TLS, MAX_ATTEMPTS + 1)


def test_a_start_waits_for_a_source_that_was_there_and_not_for_one_that_refuses_the_login() -> None:
    away = ClusterUnreachable("east does not answer")
    assert should_wait_for_source(away, 1, once=False)
    assert not should_wait_for_source(away, 0, once=False), "it never was there"
    assert not should_wait_for_source(away, 1, once=True)
    assert not should_wait_for_source(away, MAX_ATTEMPTS + 1, once=False)
    assert not should_wait_for_source(LoginRefused("east: SASL fails"), 1, once=False), "with the same secret"

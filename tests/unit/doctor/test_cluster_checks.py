"""Certificates of brokers, as the doctor looks at them: a server of this test stands for a broker's listener."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Thread

import pytest
import trustme

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.cluster_checks import _certificate
from mirrorlake.doctor.findings import CheckOutcome
from tests.unit.doctor.kit import bad, ground_of, settings


@contextmanager
def listening(certificate: trustme.LeafCert) -> Iterator[int]:
    """Answer TLS handshakes with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                with suppress(OSError), plain, context.wrap_socket(plain, server_side=True):
                    pass

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        # A thread that waits in `accept` is not woken by a close.
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def looked(folder: Path, certificate: trustme.LeafCert, ca: trustme.CA) -> list[CheckOutcome]:
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    with listening(certificate) as port:
        client = {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}
        given = settings(east={"bootstrap_servers": f"127.0.0.1:{port}", "client": client})
        inputs: CheckContext = ground_of(folder, given=given)
        return list(_certificate(inputs, "east"))


def test_a_certificate_that_is_valid_expires_soon_or_is_of_somebody_else(tmp_path: Path) -> None:
    ca, soon = trustme.CA(), datetime.now(timezone.utc) + timedelta(days=9, hours=1)
    [seen] = looked(tmp_path, ca.issue_cert("127.0.0.1"), ca)
    assert (seen.severity, "is valid until" in seen.detail) == ("ok", True)
    [seen] = looked(tmp_path, ca.issue_cert("127.0.0.1", not_after=soon), ca)
    assert (seen.severity, seen.detail.endswith("9 days more")) == ("warning", True)
    past = datetime.now(timezone.utc) - timedelta(days=1)
    begun = past - timedelta(days=9)
    [seen] = looked(tmp_path, ca.issue_cert("127.0.0.1", not_before=begun, not_after=past), ca)
    assert (seen.severity, "expired" in seen.detail) == ("failure", True)
    [seen] = looked(tmp_path, ca.issue_cert("kafka.example"), ca)
    assert (seen.severity, "127.0.0.1" in seen.detail) == ("failure", True)
    [seen] = looked(tmp_path, trustme.CA().issue_cert("127.0.0.1"), ca)
    assert seen.severity == "failure"


@pytest.mark.law("A")
def test_groups_that_cannot_be_kept_in_step(tmp_path: Path) -> None:
    both = {"topics": "orders", "policy": "identity"}
    flows = [{"source": "east", "target": "west", **both}, {"source": "west", "target": "east", **both}]
    assert bad(tmp_path, "groups.held-back", given=settings(flows=flows)) == []
    flows[0]["delivery"] = "at_least_once"
    found = bad(tmp_path, "groups.held-back", given=settings(flows=flows))
    assert "delivers at least once" in dict(found)["east->west"]

"""Ways round over flows of several settings files, by what ledgers say; filled topics are shown on real brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.model.ledger import FlowOrigin
from mirrorlake.model.remotes import Remote
from mirrorlake.topics import OtherFiles
from mirrorlake.topics.ledger_flows import LedgerFlow
from tests.builders import mirror_config


class Ledgers:
    """What the ledgers on each cluster say; a cluster that is not named does not answer."""

    def __init__(self, into: Mapping[str, Sequence[LedgerFlow]]) -> None:
        self.asked: list[str] = []
        self._into = into

    def into(self, alias: str, *, but: Collection[str]) -> list[LedgerFlow]:
        self.asked.append(alias)
        if alias not in self._into:
            raise ClusterUnreachable(f"cluster {alias} does not answer")
        return [one for one in self._into[alias] if one.ledger not in but]


class Lake:
    """A lake that knows `orders` on every source, and the id of each cluster: its alias in capitals."""

    def query_rows(self, *_: Any, **__: Any) -> list[Any]:
        facts = {"generation": 1, "topic_id": "", "partitions": 1, "configs": (), "cuts": (), "leader_epochs": ()}
        return [SimpleNamespace(topic="orders", present=True, **facts)]

    def relay_location(self, alias: str) -> str:
        return alias

    def exists(self, _: str) -> bool:
        return True

    def properties(self, location: str) -> dict[str, str]:
        return {"mirrorlake.cluster.id": location.upper()}


def foreign(name: str, source: str, target: str, *, adds_hops: bool = False, known: bool = True) -> LedgerFlow:
    origin = FlowOrigin(source, target, source.upper(), adds_hops) if known else None
    remotes = {"orders": Remote("orders", "1")}
    return LedgerFlow(name=name, ledger=f"mirrorlake.{name}.ledger", origin=origin, remotes=remotes, sent=frozenset())


def refused(ledgers: Ledgers, *flows: Mapping[str, Any]) -> str:
    """Return why the first flow does not send `orders`; empty where it does."""
    config = mirror_config(*({"policy": "identity", **flow} for flow in flows))
    first = config.flows[0]
    others = OtherFiles(
        first,
        flows=config.flows,
        lake=cast("Any", Lake()),
        audit=cast("Any", None),
        ledgers=cast("Any", ledgers),
        admin=cast("Any", SimpleNamespace(cluster_id=lambda: first.target.upper())),
        reader=cast("Any", None),
        has_brokers=lambda _: True,
    )
    found = others.refuse_round_trips({first.remote_topic("orders"): ["orders"]})
    return next((one.cause for one in found.values()), "")


THERE, ON = {"source": "a", "target": "b"}, {"source": "c", "target": "a"}


@pytest.mark.law("F")
@pytest.mark.parametrize(
    ("here", "back", "is_refused"),
    [
        ({}, foreign("back", "b", "a"), True),
        ({"provenance": True}, foreign("back", "b", "a"), True),
        ({"provenance": True}, foreign("back", "b", "a", adds_hops=True), False),
        # Headers name clusters by their aliases: in other words they say nothing.
        ({"provenance": True}, foreign("back", "b", "home", adds_hops=True), True),
        ({}, foreign("back", "b", "a", known=False), False),
        ({}, foreign("beside", "x", "a"), False),
        ({"policy": "default"}, foreign("back", "b", "a"), False),
    ],
)
def test_law_f_what_comes_back_over_another_file_is_refused_unless_headers_tell_it_apart(
    here: Mapping[str, Any], back: LedgerFlow, *, is_refused: bool
) -> None:
    found = refused(Ledgers({"a": [back]}), {**THERE, **here})
    assert found.startswith("records of orders could be mirrored in an endless loop: a->b, back, a->b") == is_refused, (
        found
    )


@pytest.mark.law("F")
def test_law_f_a_way_round_leads_over_flows_of_both_files() -> None:
    ledgers = Ledgers({"a": [], "c": [foreign("back", "b", "c")]})
    found = refused(ledgers, THERE, ON)
    assert found.startswith("records of orders could be mirrored in an endless loop: a->b, back, c->a, a->b"), found


def test_a_source_that_does_not_answer_holds_nothing_up() -> None:
    ledgers = Ledgers({})
    assert refused(ledgers, THERE) == ""
    assert ledgers.asked == ["a"]

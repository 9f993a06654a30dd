"""What long-lived tasks outlast, and what ends them."""

from __future__ import annotations

import pytest

from mirrorlake.errors import ClusterUnreachable, LoginRefused
from mirrorlake.republish.follower_driver import LedgerOutages


def test_a_ledger_that_is_away_waits_and_a_refused_login_ends_the_tasks() -> None:
    with LedgerOutages("east->central").tolerated():
        raise ClusterUnreachable("central does not answer")
    with pytest.raises(LoginRefused), LedgerOutages("east->central").tolerated():
        raise LoginRefused("central: SASL fails")

"""Which errors of a lane a new start may help."""

from __future__ import annotations

import pytest

from mirrorlake.errors import ClusterUnreachable, LoginRefused, NotAuthorized
from mirrorlake.kafka.lane.faults import RestartProducer, restarting_if_unreachable


def test_a_lane_starts_again_where_its_target_is_away_and_not_where_its_login_is_refused() -> None:
    with pytest.raises(RestartProducer, match="read the ledger"), restarting_if_unreachable("read the ledger"):
        raise ClusterUnreachable("central does not answer")
    with pytest.raises(LoginRefused), restarting_if_unreachable("read the ledger"):
        raise LoginRefused("central: SASL fails")
    with pytest.raises(NotAuthorized), restarting_if_unreachable("read the ledger"):
        raise NotAuthorized("not allowed")

"""Which errors of a lane a new start may help."""

from __future__ import annotations

import pytest

from mirrorlake.errors import ClusterUnreachable, LoginRefused, NotAuthorized
from mirrorlake.kafka.lane.faults import Restart, starting_again


def test_a_lane_starts_again_where_its_target_is_away_and_not_where_its_login_is_refused() -> None:
    with pytest.raises(Restart, match="read the ledger"), starting_again("read the ledger"):
        raise ClusterUnreachable("central does not answer")
    with pytest.raises(LoginRefused), starting_again("read the ledger"):
        raise LoginRefused("central: SASL fails")
    with pytest.raises(NotAuthorized), starting_again("read the ledger"):
        raise NotAuthorized("not allowed")

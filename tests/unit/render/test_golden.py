"""What each kind of value says, as text, and some as HTML and as JSON, word for word."""

from __future__ import annotations

import json
from datetime import timezone

from tests.kit.golden import Golden
from tests.unit.values import every

PROMISED = ("Status", "VerifyReports", "FailoverReport", "CutoverReport", "DrillReport", "Erasure")


def test_the_text_of_each_kind_of_value(golden: Golden) -> None:
    golden("values.txt", "\n\n".join(value.to_text(zone=timezone.utc, rows=None) for value in every("orders")) + "\n")


def test_the_json_that_programs_read(golden: Golden) -> None:
    told = {type(one).__name__: one.as_dict() for one in every("orders") if type(one).__name__ in PROMISED}
    golden("values.json", json.dumps(told, indent=1, default=str, sort_keys=True) + "\n")


def test_the_html_of_a_verdict_with_a_table(golden: Golden) -> None:
    [found] = (value for value in every("orders") if type(value).__name__ == "VerifyReports")
    golden("value.html", found.to_html(zone=timezone.utc).replace("><", ">\n<") + "\n")

"""Break the product on purpose, and see a judge turn red: `python -m tests.judges.breaks [NAME ...]`.

Each break is one change of one line or two. It is made in a copy of the checkout, where the judge that must notice is run; one
that stays green judges nothing, and ends this with exit code 1. After a room was rebuilt, its breaks are put at the new lines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HOUSE = Path(__file__).parents[2]
_FOLDERS = ("mirrorlake", "tests", "conf", "notebooks", "jobs", "docs")
_FILES = ("pyproject.toml", "README.md", "Makefile", "CHANGELOG.md")
# What pytest says when tests were run, and one failed.
_RED = 1


@dataclass(frozen=True)
class Break:
    """A fault, the text of a file that it changes, and the judge that must turn red."""

    name: str
    file: str
    was: str
    now: str
    judge: str


BREAKS = (
    Break(
        "a position past an unread record (law A)",
        "mirrorlake/model/offset_map.py",
        "return min(limits, default=None)",
        "return min(limits) + 1 if limits else None",
        "tests/judges/test_groups.py -k every_position_is_exact",
    ),
    Break(
        "a record twice (law F)",
        "mirrorlake/kafka/lane/holder.py",
        "self.positions.update(of_lane(last.positions, self.spec.claim.lane, lanes=self.spec.claim.lanes))",
        "pass",
        "tests/protocol/test_lanes.py -k what_the_ledger_holds_is_skipped",
    ),
    Break(
        "a record missing in a filtered topic (law E)",
        "mirrorlake/rules/rule.py",
        'sieve.hold(kept_back, FILTERED, "")',
        'sieve.hold(kept_back | (np.arange(len(kept_back)) == 0), FILTERED, "")',
        "tests/judges/test_rules.py -k originals_never_reach",
    ),
    Break(
        "another order within a partition (law D)",
        "mirrorlake/kafka/lane/transaction.py",
        "            binary_values(values),\n            binary_values(keys),",
        "            reversed([*binary_values(values)]),\n            reversed([*binary_values(keys)]),",
        "tests/judges/test_laws.py -k odd_records",
    ),
    Break(
        "a header lost (law C)",
        "mirrorlake/kafka/lane/columns.py",
        "return [pairs[a - start : b - start] or None for a, b in pairwise(bounds)]",
        "return [pairs[a - start : b - start - 1] or None for a, b in pairwise(bounds)]",
        "tests/judges/test_laws.py -k odd_records",
    ),
    Break(
        "a claim that forgets a lane (law F)",
        "mirrorlake/republish/fencing.py",
        "self.sent = merged_positions(last, remote_topic)",
        "self.sent = merged_positions({0: last.get(0)}, remote_topic)",
        "tests/protocol/test_ownership.py -k death_between_two_claims",
    ),
    Break(
        "a fence of a lane that does not fence (law F)",
        "mirrorlake/kafka/lane/holder.py",
        'options["transactional.id"] = transactional_id(claim.flow, claim.lane)',
        'options["transactional.id"] = transactional_id(claim.flow, claim.lane) + claim.owner',
        "tests/protocol/test_lanes.py -k fenced_holder_of_an_older_epoch",
    ),
    Break(
        "a fence of landing that does not fence (law F)",
        "mirrorlake/lake/fenced_writer.py",
        "        if self._recorded() != self.number:",
        "        if self._recorded() < 0:",
        "tests/judges/test_zombies.py -k replaced_between",
    ),
    Break(
        "a flush left out (law C)",
        "mirrorlake/runtime/durable.py",
        "        os.fsync(handle)",
        "        pass",
        "tests/judges/test_flushes.py",
    ),
    Break(
        "a plan that is not empty the second time (law G)",
        "mirrorlake/model/plan.py",
        "differing = {key: value for key, value in wanted.configs.items() if actual.configs.get(key) != value}",
        "differing = dict(wanted.configs)",
        "tests/judges/test_sync.py -k settings_follow_the_source",
    ),
    Break(
        "a write to the source (law H)",
        "mirrorlake/kafka/fetcher.py",
        "for tp, at in self._positions.items()])",
        "for tp, at in self._positions.items()])\n        self._consumer.commit(offsets=self._consumer.assignment())",
        "tests/judges/test_other_clients.py",
    ),
    Break(
        "a secret in a log",
        "mirrorlake/kafka/fetcher.py",
        "        self._answer_bytes = self._size.limit\n",
        '        self._answer_bytes = self._size.limit\n        log.info("fetch.options %s", self._errors.options)\n',
        "tests/judges/test_security.py -k rotated_password",
    ),
    Break(
        "a group moved while active (law A)",
        "mirrorlake/offsets/groups.py",
        "is_active=group in active",
        "is_active=False",
        "tests/judges/test_groups.py -k must_not_be_moved",
    ),
    Break(
        "a later offset that translates earlier (law B)",
        "mirrorlake/model/offset_map.py",
        "return Exact(downstream + upstream_offset - first, target)",
        "return Exact(downstream + max(last - upstream_offset, 0), target)",
        "tests/judges/test_laws.py -k odd_records",
    ),
    Break(
        "a record that is missing and called equal (law E)",
        "mirrorlake/verify/hop.py",
        '                problem = "missing"\n',
        "                continue\n",
        "tests/judges/test_verify.py -k what_is_proven_is_not_read_again",
    ),
    Break(
        "what was not sent yet called equal (law E)",
        "mirrorlake/verify/flow_report.py",
        "for s, one in pending.items()",
        "for s, one in list(pending.items())[:0]",
        "tests/judges/test_verify.py -k fixed_cut",
    ),
    Break(
        "records that a flow still needs expire (law E)",
        "mirrorlake/maintenance/retention.py",
        "if standing.is_past(file):",
        "if True:",
        "tests/judges/test_removals.py -k retention",
    ),
    Break(
        "a record with a wrong fate (law E)",
        "mirrorlake/records/passport.py",
        "status=row.kind,",
        'status="filtered",',
        "tests/judges/test_records.py -k passport",
    ),
    Break(
        "a group moved where it reads (law A)",
        "mirrorlake/offsets/group_positions.py",
        "if not related.back:",
        "if True:",
        "tests/judges/test_both_ways.py",
    ),
    Break(
        "a replay of more than was asked for",
        "mirrorlake/replay/request.py",
        "if self.keys:",
        "if False:",
        "tests/judges/test_replay.py -k predicate",
    ),
    Break(
        "an offset sync beside the map (law B)",
        "mirrorlake/model/mm2.py",
        "upstream, run.first_downstream + place)",
        "upstream, run.first_downstream + place + 1)",
        "tests/judges/test_mm2.py -k offset_syncs",
    ),
    Break(
        "a takeover that trusts what was stored (law F)",
        "mirrorlake/mm2/takeover.py",
        "row = replace(row, **asdict(answer))",
        "pass",
        "tests/judges/test_mm2.py -k stored_offsets",
    ),
    Break(
        "a failover that forgets its steps (law F)",
        "mirrorlake/procedure/journal.py",
        "replace(known, steps=(*known.steps, step))",
        "replace(known, steps=known.steps or (step,))",
        "tests/judges/test_failover.py -k killed_between_all_steps",
    ),
    Break(
        "a pause that one view does not know",
        "mirrorlake/status/judging.py",
        'return "paused", str(pause)',
        'return "behind", str(pause)',
        "tests/judges/test_views.py -k every_view",
    ),
    Break(
        "replicas out of sync that the doctor does not see",
        "mirrorlake/doctor/topic_checks.py",
        "one.leader is None or len(one.isr) < least:",
        "one.leader is None:",
        "tests/judges/test_doctor.py -k topics_ledger_and_groups",
    ),
    Break(
        "another exit code",
        "mirrorlake/errors.py",
        "exit_code: ClassVar[int] = 4",
        "exit_code: ClassVar[int] = 2",
        "tests/judges/test_cli.py -k unreachable",
    ),
    Break(
        "a group whose refusal stops the others",
        "mirrorlake/offsets/groups.py",
        "            errors.append(error)\n",
        "            raise\n",
        "tests/judges/test_groups_held.py -k may_not_read_or_set",
    ),
    Break(
        "a group that is read only when its transaction has ended",
        "mirrorlake/kafka/groups.py",
        '{"isolation.level": "read_uncommitted"}',
        '{"isolation.level": "read_committed"}',
        "tests/judges/test_groups_held.py -k open_transaction",
    ),
    Break(
        "topics made on the connection that a quota silences",
        "mirrorlake/kafka/admin.py",
        "self._changes.create_topics(",
        "self._client.create_topics(",
        "tests/judges/test_quota.py",
    ),
    Break(
        "a topic that may not leave, leaves",
        "mirrorlake/config/schema/flow.py",
        "return bool(self._never_leave) and NameMatcher(self._never_leave).matches(topic)",
        "return False",
        "tests/judges/test_never_leave.py -k by_no_door",
    ),
    Break(
        "a record that goes round",
        "mirrorlake/rules/hop_header.py",
        'been = _rows_been_on(self.target, records.column("headers"))',
        "been = np.zeros(len(records), dtype=bool)",
        "tests/judges/test_loops.py -k goes_round",
    ),
    Break(
        "a key in another partition than Java's (law D)",
        "mirrorlake/rules/murmur2.py",
        "% np.int64(count)).astype",
        "% np.int64(max(1, count - 1))).astype",
        "tests/judges/test_placement.py -k as_java_places",
    ),
    Break(
        "a lost remote topic that is filled again (law F)",
        "mirrorlake/model/remotes.py",
        "if now is None or any(",
        "if False and any(",
        "tests/judges/test_targets.py -k waits_for_a_choice",
    ),
    Break(
        "a source's log that went back, unseen (law E)",
        "mirrorlake/landing/truncations.py",
        "    if not extents:\n        return truncations",
        "    if True:\n        return truncations",
        "tests/judges/test_sources.py -k went_back",
    ),
    Break(
        "a revoked ACL that stays",
        "mirrorlake/topics/acl_ownership.py",
        "elif flow in holders and len(holders) == 1:",
        "elif flow in holders and len(holders) == 9:",
        "tests/judges/test_sync.py -k strangers_are_spared",
    ),
    Break(
        "a remedy that grants too little",
        "mirrorlake/kafka/errors.py",
        'if self.pattern == "PREFIXED":',
        'if self.pattern == "NEVER":',
        "tests/judges/test_least_privilege.py -k refusals_say",
    ),
    Break(
        "positions past a relay that went back (law C)",
        "mirrorlake/landing/start.py",
        "if not (is_older or writer.history.was_restored):",
        "if True:",
        "tests/judges/test_power_cut.py -k positions_know",
    ),
    Break(
        "an original behind a mask",
        "mirrorlake/rules/json_fields.py",
        "def masked(_: Raw) -> Raw:\n    return MASK",
        "def masked(_: Raw) -> Raw:\n    return _",
        "tests/judges/test_rules.py -k originals_never_reach",
    ),
    Break(
        "a position of a topic that another lake knew (law E)",
        "mirrorlake/republish/start.py",
        "if source.generation > newest:",
        "if source.generation > newest + 1:",
        "tests/judges/test_policy_changed.py -k lives_of_a_topic",
    ),
    Break(
        "a lost lane of a ledger, unseen (law F)",
        "mirrorlake/republish/start.py",
        "what = _describe_partial(flow, last) or _describe_loss(flow, last, copy.copied_seqs)",
        'what = ""',
        "tests/judges/test_ledger.py -k loses_a_lane",
    ),
    Break(
        "one topic's trouble that stops its flow",
        "mirrorlake/republish/waiting_topics.py",
        "    facts = error.facts\n    if isinstance",
        "    facts = error.facts\n    return frozenset()\n    if isinstance",
        "tests/judges/test_isolation.py -k is_parked_and_comes_back",
    ),
    Break(
        "a pause that pauses nothing",
        "mirrorlake/model/control.py",
        "return lambda topic: whole or topics.get(topic)",
        "return lambda topic: None",
        "tests/judges/test_control.py -k follows_edits",
    ),
)


def make(one: Break, folder: Path) -> None:
    path = folder / one.file
    text = path.read_text(encoding="utf-8")
    assert text.count(one.was) == 1, f"{one.name}: {one.file} holds its text {text.count(one.was)} times"
    path.write_text(text.replace(one.was, one.now), encoding="utf-8")


def is_red(one: Break) -> bool:
    """Run the judge of a break on a copy that has it."""
    with tempfile.TemporaryDirectory(prefix="break-") as name:
        folder = Path(name)
        for part in _FOLDERS:
            shutil.copytree(HOUSE / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in _FILES:
            shutil.copy(HOUSE / part, folder / part)
        make(one, folder)
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *one.judge.split()]
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    last = found.stdout.strip().splitlines()[-1:]
    print(f"{'red  ' if found.returncode == _RED else 'GREEN'} {one.name}: {one.judge} {last}", flush=True)  # noqa: T201
    return found.returncode == _RED


def main() -> None:
    wanted = [one for one in BREAKS if not sys.argv[1:] or one.name in sys.argv[1:]]
    red = [is_red(one) for one in wanted]
    sys.exit(0 if all(red) else 1)


if __name__ == "__main__":
    main()

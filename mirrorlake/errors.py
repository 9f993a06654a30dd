"""Every error that mirrorlake raises on purpose, as one tree.

```
MirrorlakeError            exit   .cause .consequence .remedy
├── ConfigError              2    .faults: file, path, value, remedy; all of them at once
├── UsageError               2    a name or an argument that does not exist
│   └── ColumnUnknown             .table         no record of a typed table has brought a column that its settings name
├── SafetyError              3    refused, because going on could lose or repeat records
│   ├── CheckpointLost            .location      checkpoint location and table disagree
│   ├── LedgerLost                .flow          the ledger lacks what its copy in the lake holds
│   ├── SourceGap                 .gaps          records that left the source before they were landed (law E)
│   ├── AlreadyRuns               .flow          a drain beside a mirror that runs
│   ├── LaneFenced                .flow          another republisher owns the flow now
│   ├── LanderReplaced            .alias         another lander lands the source now
│   ├── ClusterIdMismatch              .alias         another cluster answers under the alias
│   ├── TakeoverRefused           .flow          another mirror's place is not known, or it still runs
│   ├── FailoverRefused           .flow .reasons failing over or back, or cutting over, is not safe now
│   ├── GroupActive               .alias .group  a group with members is never moved
│   ├── TopicConflict             .topic         the remote topic exists and does not fit
│   ├── RemoteTopicLost           .flow .topic   a remote topic that records were sent to was deleted, created again or cut
│   ├── TopicDenied               .flow .topic   the source's settings say that the topic never leaves
│   └── UnsendableRecord          .topic .partition .offset   the target cannot hold this record unchanged (law C)
├── ClusterError             4    .alias
│   ├── ClusterUnreachable        .layer         no connection: TCP, or TLS
│   │   └── LoginRefused                         the login: tried again, its secret may have been rotated
│   ├── NotAuthorized
│   └── RecordTooLarge            .topic .partition .offset
├── RegistryError            4    a schema registry refused a request, or answers nonsense
│   ├── RegistryUnreachable       no answer, or one of a server in trouble: asking again may help
│   ├── RegistryRefused           the login is refused, or lacks a permission
│   └── SchemaUnknown             .schema_id     it knows no such id, subject or version
├── StoreError               4    the lake could not be read or written
├── StartAbandoned           4    a stream was stopped while it waited for the start of Spark
└── SandboxError             4    a local broker could not be started or stopped
```

Each message names the cause, the consequence and the next command; a front end prints `str(error)` and exits with
`error.exit_code`, never with a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class MirrorlakeError(Exception):
    """State what happened, what it means, and what to do next.

    Args:
        cause: what was found, with the names needed to find it again.
        consequence: what was not done, or what would happen otherwise.
        remedy: the next command or edit.
        **facts: objects that a caller may want (`flow`, `alias`, `topic`, `offset` ...); each becomes an attribute.

    Example:
        >>> error = MirrorlakeError("the lake is full", consequence="nothing was landed", remedy="free space")
        >>> str(error)
        'the lake is full; nothing was landed. Next: free space'
    """

    exit_code: ClassVar[int] = 4

    def __init__(self, cause: str, *, consequence: str = "", remedy: str = "", **facts: Any) -> None:
        self.cause = cause
        self.consequence = consequence
        self.remedy = remedy
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        super().__init__(self._text())

    def _text(self) -> str:
        text = self.cause
        if self.consequence:
            text += f"; {self.consequence}"
        if self.remedy:
            text += f". Next: {self.remedy}"
        return text

    def as_dict(self) -> dict[str, Any]:
        """Make the JSON document that `--json` prints."""
        return {
            "error": type(self).__name__,
            "cause": self.cause,
            "consequence": self.consequence,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
        }


@dataclass(frozen=True)
class Fault:
    """One thing wrong in a settings file: where, what, and how to mend it."""

    file: str
    path: str
    problem: str
    remedy: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        where = f"{place} {self.path}" if self.path else place
        return f"{where}: {self.problem}" + (f" — {self.remedy}" if self.remedy else "")


class ConfigError(MirrorlakeError):
    """Report every fault of a settings file at once."""

    exit_code = 2

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = len(self.faults)
        super().__init__(
            f"{count} fault{'s' if count != 1 else ''} in the settings\n" + "\n".join(f"  {fault}" for fault in faults),
            consequence="nothing was started",
            remedy="mend the lines above and run the same command again",
        )

    def _text(self) -> str:
        return f"{self.cause}\n{self.consequence}. Next: {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """Add the faults to the document."""
        return super().as_dict() | {"faults": [vars(fault) for fault in self.faults]}


class UsageError(MirrorlakeError):
    """Refuse a name or an argument that does not exist, listing the ones that do."""

    exit_code = 2


class ColumnUnknown(UsageError):
    """Report a column that the settings name and no record of a typed table has brought; a later one may."""


class SafetyError(MirrorlakeError):
    """Refuse to go on where going on could lose, repeat or hide records."""

    exit_code = 3


class CheckpointLost(SafetyError):
    """Refuse a checkpoint location that disagrees with the table or the ledger it belongs to."""


class LedgerLost(SafetyError):
    """Refuse a ledger that lacks what the offset map already holds."""


class SourceGap(SafetyError):
    """Stop because records left the source before they were landed (law E)."""


class AlreadyRuns(SafetyError):
    """Refuse to drain flows that a living process carries."""


class LaneFenced(SafetyError):
    """Stop because another republisher owns the flow now."""


class LanderReplaced(SafetyError):
    """Stop because another lander lands the source now."""


class ClusterIdMismatch(SafetyError):
    """Refuse a cluster that is not the one whose records the lake holds under its alias."""


class TakeoverRefused(SafetyError):
    """Refuse to go on where another mirror ended: it still runs, or its place is not known."""


class FailoverRefused(SafetyError):
    """Refuse to fail over or back, or to cut over, with every reason; what was done before it stands."""


class GroupActive(SafetyError):
    """Refuse to set the positions of a group that has members."""


class TopicConflict(SafetyError):
    """Refuse a remote topic that exists and does not fit its source."""


class RemoteTopicLost(SafetyError):
    """Send nothing to a remote topic that was deleted, created again, or lacks what was sent to it, until a person chooses.

    `cut` is set where its log went back: the id by which the next claim calls it (`model/remotes.py`).
    """

    cut: str | None = None


class TopicDenied(SafetyError):
    """Stop before a topic that may never leave its cluster is sent."""


class UnsendableRecord(SafetyError):
    """Stop at a record that no client library can send unchanged (law C)."""


class ClusterError(MirrorlakeError):
    """Report an operation that a cluster refused or did not answer."""


class ClusterUnreachable(ClusterError):
    """Report a cluster that does not answer at its configured addresses."""


class LoginRefused(ClusterUnreachable):
    """Report a cluster that refuses the login, or a token that cannot be had; a secret that was rotated is resolved again."""


class NotAuthorized(ClusterError):
    """Report a missing permission, with the ACL that would grant it."""


class RecordTooLarge(ClusterError):
    """Report a record that the target topic does not accept because of its size."""


class RegistryError(MirrorlakeError):
    """Report a request that a schema registry refused, or answered with something else."""


class RegistryUnreachable(RegistryError):
    """Report a schema registry that does not answer now."""


class RegistryRefused(RegistryError):
    """Report a schema registry that refuses the login, or what the login may not do."""


class SchemaUnknown(RegistryError):
    """Report an id, subject or version that a schema registry does not know."""


class StoreError(MirrorlakeError):
    """Report a table or path of the lake that cannot be read or written."""


class StartAbandoned(MirrorlakeError):
    """Report that a stream was stopped while it waited for the start of Spark."""


class SandboxError(MirrorlakeError):
    """Report a local broker that could not be started or stopped."""

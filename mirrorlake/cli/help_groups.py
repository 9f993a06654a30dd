"""The groups of `mirrorlake --help`, and the order of the commands in each; docs/commands.md has the same."""

from __future__ import annotations

from typer import Context
from typer.core import TyperGroup

GROUPS = {
    "Start": (
        *("sandbox", "import-mm2", "takeover", "doctor", "plan", "apply"),
        *("run", "land", "republish", "pause", "resume", "tables", "rules", "publish"),
    ),
    "Watch": ("console", "status", "events", "lag", "verify"),
    "Find": ("topics", "records", "passport", "offsets"),
    "Recover": ("groups", "failover", "failback", "cutover", "drill", "replay"),
    "Keep": ("maintain", "quarantine", "repair", "retire", "erase"),
}
_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
_ORDER = list(_GROUP_OF)


def find_group(function: str) -> str | None:
    """Return the group of a command by its function's name; None has the help show it before all groups.

    >>> find_group("import_mm2")
    'Start'
    """
    return _GROUP_OF.get(function.replace("_", "-"))


class GroupedCommands(TyperGroup):
    def list_commands(self, ctx: Context) -> list[str]:  # type: ignore[override]  # typer's own context
        return sorted(super().list_commands(ctx), key=lambda name: _ORDER.index(name) if name in _GROUP_OF else -1)

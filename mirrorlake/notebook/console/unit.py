"""The systemd unit of an always-on mirror, for the console and, by `make docs`, `jobs/systemd/mirrorlake.service`."""

from __future__ import annotations

from collections.abc import Sequence

# A process ends within 20 s of SIGTERM; the next start repeats an unfinished batch (law F).
_STOP_S = 45


def systemd_unit(command: Sequence[str], *, settings: str, more: Sequence[str] = ()) -> str:
    """Return a unit that runs a command always on, as its own user.

    `command` is quoted for systemd, which starts nothing without the file `settings`. `more` are lines of the section `[Service]`.

    Example:
        >>> print(systemd_unit(["/opt/m/bin/mirrorlake", "run"], settings="/etc/m.yml").splitlines()[0])
        [Unit]
    """
    return "\n".join(
        (
            "[Unit]",
            "Description=mirrorlake: mirrors Kafka topics through a lake, exactly once",
            "After=network-online.target",
            "Wants=network-online.target",
            f"ConditionPathExists={settings}",
            # A cluster may be unreachable for hours: systemd never gives up starting.
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            "Type=exec",
            f"ExecStart={' '.join(command)}",
            *more,
            "Restart=on-failure",
            "RestartSec=10",
            "# 2: the settings are wrong, 3: refused for safety; both wait for a person.",
            "RestartPreventExitStatus=2 3",
            "KillMode=mixed",
            f"TimeoutStopSec={_STOP_S}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        )
    )

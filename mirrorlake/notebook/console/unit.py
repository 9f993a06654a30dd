"""The systemd unit of an always-on mirror: what the console shows, and `jobs/systemd/mirrorlake.service` by `make docs`."""

from __future__ import annotations

from collections.abc import Sequence

# A process ends within 20 s of SIGTERM; what is under way then is begun again by the next start (law F).
_STOP_S = 45


def systemd_unit(command: Sequence[str], *, settings: str, more: Sequence[str] = ()) -> str:
    """Write the unit that runs a command always on, as a user of its own.

    Args:
        command: what is run, its words ready for systemd.
        settings: the settings file, which systemd looks for before it starts anything.
        more: further lines of its section `[Service]`, such as where secrets are.

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
            # A cluster may be away for hours: starts are never given up.
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

"""Carry one planned change out on a cluster; whatever is already so is left as it is (law G)."""

from __future__ import annotations

from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change, TopicSpec


def apply_change(change: Change, admin: ClusterAdmin) -> None:
    """Do what the change says.

    Raises:
        ClusterError: the cluster refused.
    """
    if change.kind == "acl":
        if change.action == "create":
            admin.acls.create([Acl(**change.after)])
        elif change.action == "delete":
            admin.acls.delete([Acl(**change.before)])
    elif change.action == "create":
        admin.create(
            TopicSpec(
                name=change.name,
                partitions=change.after["partitions"],
                configs=change.after["configs"],
                replication_factor=change.after.get("replication_factor", -1),
            )
        )
    elif change.action == "add_partitions":
        admin.grow(change.name, change.after)
    elif change.action in ("set_configs", "reset_configs"):
        admin.set_configs(change.name, change.after)

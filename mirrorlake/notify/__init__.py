"""Notifications: tell receivers what changed in a running mirror (docs/notifications.md)."""

from mirrorlake.notify.notifier import mirror_id, notifying
from mirrorlake.notify.receiver import try_receiver

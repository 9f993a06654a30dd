"""Settings of a lake cluster's topics: partition counts, and settings of the remote topics."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mirrorlake.config import values
from mirrorlake.config.base import Count, Settings
from mirrorlake.config.faults import SettingsFault, fault_error, raise_any
from mirrorlake.config.schema.selection import TopicMatcher
from mirrorlake.config.schema.sync import unknown_settings
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.model.policy import is_legal_topic

_ANY = TopicMatcher(TopicPattern((".*",)))


def topic_fault(name: str) -> tuple[str, str] | None:
    """Return problem and remedy of a name that no application may publish to, or None for a good name.

    >>> topic_fault("orders"), topic_fault("__consumer_offsets")[0]
    (None, "'__consumer_offsets' is internal to Kafka, MirrorMaker or mirrorlake")
    """
    if not is_legal_topic(name):
        return f"'{name[:60]}' is not a legal topic name", "use letters, digits, . _ and -, at most 249"
    if not _ANY.matches(name):
        return (f"'{name}' is internal to Kafka, MirrorMaker or mirrorlake", "no flow mirrors it; choose another name")
    return None


def _topic_settings(value: Any) -> dict[str, str]:
    raise_any(unknown_settings(value))
    return values.options(value)


class LakeTopicConfig(Settings):
    """One topic of a lake cluster."""

    partitions: Count | None = Field(default=None, description="partition count; it only grows")
    configs: Annotated[dict[str, str], BeforeValidator(_topic_settings)] = Field(
        default_factory=dict, description="{setting: value} of the remote topics"
    )


def topics_by_name(value: Any) -> Any:
    """Return `{name: topic}` with empty entries filled in.

    Raises:
        PydanticCustomError: nobody may publish to some names; names all of them.
    """
    if not isinstance(value, dict):
        raise fault_error("a mapping is expected", "write {orders: {partitions: 6}}")
    raise_any(SettingsFault((name,), *fault) for name in value if (fault := topic_fault(str(name))))
    return {name: {} if topic is None else topic for name, topic in value.items()}

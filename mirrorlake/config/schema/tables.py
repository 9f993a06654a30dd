"""Settings of typed tables: which topics become tables of columns, and how (docs/typed-tables.md)."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from mirrorlake.config.base import Exclusion, Interval, Selection, Settings, at_least
from mirrorlake.config.ddl import columns_type, is_expression
from mirrorlake.config.faults import SettingsFault, below, closest, fault_error, raise_any
from mirrorlake.config.schema.registry import RegistryConfig
from mirrorlake.config.schema.selection import TopicMatcher
from mirrorlake.model.patterns import DEFAULT_EXCLUDE_TOPICS, subscribe_pattern

if TYPE_CHECKING:
    import pyarrow as pa

PayloadFormat = Literal["json", "avro", "protobuf", "json_schema", "text", "binary"]
# The name becomes that of a folder.
_NAME = re.compile(r"(?=.{1,200}$)(?:[A-Za-z0-9_]|\{topic\}|\{source\})(?:[A-Za-z0-9._-]|\{topic\}|\{source\})*")
_COLUMN = re.compile(r"[A-Za-z]\w*")
# The columns of a record's place that many records share.
_PLACES = ("_source", "_topic", "_generation", "_partition")
_INFERRED, _REGISTRY = "inferred", "registry"
IN_REGISTRY = ("avro", "protobuf")
_IN_JSON = ("json", "json_schema")


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))


class TableConfig(Settings):
    """One table of columns, or one a topic.

    Example:
        >>> TableConfig(topics="orders.*", name="{source}_{topic}").table_name("east", "orders")
        'east_orders'
    """

    topics: Selection = Field(description="source topics whose records are rows")
    exclude_topics: Exclusion = Field(default=DEFAULT_EXCLUDE_TOPICS, description="topics that are left out")
    sources: tuple[str, ...] = Field(default=(), description="the sources whose records come together; all without it")
    name: str = Field(default="{topic}", description="the table's name; {topic} and {source} make several tables")
    values: PayloadFormat = Field(default="json", description="the format of values")
    keys: PayloadFormat = Field(default="text", description="the format of keys")
    registry: RegistryConfig | None = Field(
        default=None, description="the registry that Avro and Protobuf records name; the source's own without it"
    )
    schema_text: str = Field(
        default=_INFERRED,
        alias="schema",
        description="inferred from records, registry, or columns of JSON: amount DECIMAL(12,2), ...",
    )
    through: tuple[str, ...] = Field(
        default=(), description="flows whose rules apply to the records of their source first"
    )
    changes: Literal["add", "refuse"] = Field(
        default="add", description="whether later records may add columns and widen types; else they are bad records"
    )
    mode: Literal["append", "upsert"] = Field(
        default="append", description="a row a record, or the newest record of each key"
    )
    columns: dict[str, str] = Field(default_factory=dict, description="{column: expression of Spark SQL}")
    partition_by: tuple[str, ...] = Field(
        default=(), description="columns of few values; each value's rows lie in files of their own"
    )
    bad_records: Literal["quarantine", "null", "stop"] = Field(
        default="quarantine", description="what to do with records that are no rows"
    )
    every: Annotated[Interval, at_least(timedelta(seconds=1), "each batch is a commit", 'write "1s" or more')] = Field(
        default=timedelta(seconds=5),
        description="the shortest time between two batches; the smallest of all tables counts",
    )
    retention: Annotated[Interval, at_least(timedelta(hours=1), "no row would stay", 'write "30d"')] | None = Field(
        default=None, description="rows whose record is older may leave the table; unlimited without it"
    )

    @field_validator("through", "sources", "partition_by", mode="before")
    @classmethod
    def _are_names(cls, names: Any) -> Any:
        return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise fault_error(f"'{name}' is not a table's name", "use letters, digits, . _ -, {topic} and {source}")
        return name

    @field_validator("columns")
    @classmethod
    def _are_expressions(cls, columns: dict[str, str]) -> dict[str, str]:
        findings = [
            SettingsFault((name,), f"'{name}' is not a column's name", "begin with a letter; then letters, digits, _")
            for name in columns
            if not _COLUMN.fullmatch(name)
        ]
        findings += [
            SettingsFault((name,), "it is not an expression of Spark SQL", "write it as after SELECT: upper(currency)")
            for name, text in columns.items()
            if not is_expression(text)
        ]
        findings += [
            SettingsFault((name,), f"'{name}' is another column, too", "give it another name; case does not count")
            for at, name in enumerate(columns)
            if name.lower() in ("value", *(other.lower() for other in list(columns)[:at]))
        ]
        raise_any(findings)
        return columns

    @model_validator(mode="after")
    def _fits_together(self) -> TableConfig:
        if self.schema_text == _REGISTRY and self.values not in IN_REGISTRY:
            problem = f"values that are {self.values} have no columns of a registry"
            remedy = f"leave it out, or write values: {', '.join(IN_REGISTRY)}"
            raise_any([SettingsFault(("schema",), problem, remedy)])
        if not self.is_inferred:
            if self.values not in _IN_JSON:
                own = "the columns of their registry" if self.values in IN_REGISTRY else "one column, value"
                remedy = f"leave it out, or write values: {', '.join(_IN_JSON)}"
                raise_any([SettingsFault(("schema",), f"values that are {self.values} have {own}", remedy)])
            with below("schema"):
                columns_type(self.schema_text)
        raise_any(self._partition_faults())
        return self

    def _partition_faults(self) -> list[SettingsFault]:
        known = [*_PLACES, *self.columns, *(self._known_kinds() or ())]
        remedy = "write _source, _topic, or a column of few values, as day: to_date(_timestamp) of `columns:`"
        return [
            SettingsFault(("partition_by", at), problem, f"{closest(name, known)}{remedy}")
            for at, name in enumerate(self.partition_by)
            if (problem := self._partition_problem(name, at))
        ]

    def _partition_problem(self, name: str, at: int) -> str:
        """Return why a table cannot be partitioned by a column, or "": columns that records decide are not known yet."""
        kinds = self._known_kinds()
        if name.lower() in (one.lower() for one in self.partition_by[:at]):
            return f"'{name}' stands there twice"
        if name in self.columns or name in _PLACES:
            return ""
        if name.startswith("_"):
            return f"each record has a '{name}' of its own"
        if kinds is not None and name not in kinds:
            return f"the table has no column '{name}'"
        return "" if kinds is None or _is_plain(kinds[name]) else f"'{name}' is not of a type that partitions have"

    def _known_kinds(self) -> dict[str, pa.DataType] | None:
        """Return the types of the value's columns by name, or None if the records decide them."""
        import pyarrow as pa

        if self.values in ("text", "binary"):
            return {"value": pa.string() if self.values == "text" else pa.binary()}
        return None if self.is_inferred else {one.name: one.type for one in self.given_type}

    @property
    def is_inferred(self) -> bool:
        """Whether records decide the columns, by their content or by the schemas that they name."""
        return self.schema_text in (_INFERRED, _REGISTRY)

    @property
    def given_type(self) -> pa.StructType:
        """The columns that `schema` names."""
        return columns_type(self.schema_text)

    @cached_property
    def matcher(self) -> TopicMatcher:
        """The matcher for the topics."""
        return TopicMatcher(self.topics, self.exclude_topics)

    def selects(self, source: str, topic: str) -> bool:
        """Return whether records of a source's topic are rows."""
        return (not self.sources or source in self.sources) and self.matcher.matches(topic)

    @property
    def topics_regex(self) -> str:
        """The topics as a regular expression of Java."""
        return subscribe_pattern((self.topics, self.exclude_topics))

    def may_make(self, name: str) -> bool:
        """Return whether some topic could make a table of this name."""
        parts = re.split(r"\{(?:topic|source)\}", self.name)
        return re.fullmatch(".+".join(map(re.escape, parts)), name) is not None

    def table_name(self, source: str, topic: str) -> str:
        """Return the name of the table with the records of a source's topic."""
        return self.name.replace("{topic}", topic).replace("{source}", source)

"""Read the settings of a MirrorMaker 2, in any format, as the properties of its dedicated mode.

a properties file    dedicated mode
Strimzi              a `KafkaMirrorMaker2` resource, YAML or JSON (`strimzi.py`)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from mirrorlake.config.mm2.properties import Mm2File, read_properties
from mirrorlake.config.mm2.strimzi import read_strimzi
from mirrorlake.errors import ConfigError, Fault


def read(data: bytes, *, file: str) -> Mm2File:
    """Read a file of either format. Raises ConfigError: it has none of them."""
    document = _document(data, file)
    if document is None:
        return read_properties(data, file=file)
    resources = list(_resources(document))
    if not resources:
        remedy = "write the connectors' settings as properties of the dedicated mode: clusters = a, b; a->b.topics = …"
        raise ConfigError([Fault(file, "", "it is neither properties nor a KafkaMirrorMaker2", remedy)])
    try:
        return read_strimzi(resources, file=file)
    except (AttributeError, TypeError) as error:
        problem = f"its `spec` is not that of a KafkaMirrorMaker2 ({error})"
        raise ConfigError([Fault(file, "spec", problem, "mend it, or export it with kubectl get -o yaml")]) from None


def _document(data: bytes, file: str) -> Any:
    """Return the content of a JSON or YAML file, or None for properties."""
    text = data.decode("utf-8", "replace")
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError([Fault(file, "", f"it begins like JSON but is not JSON ({error})", "mend it")]) from None
    if "KafkaMirrorMaker2" not in text:
        return None
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError:
        return None
    return documents if any(isinstance(each, Mapping) for each in documents) else None


def _resources(document: Any) -> Iterator[Mapping[str, Any]]:
    for each in document if isinstance(document, list) else [document]:
        if isinstance(each, Mapping) and each.get("kind") == "KafkaMirrorMaker2":
            yield each
        elif isinstance(each, Mapping) and each.get("kind") == "List":
            yield from _resources(each.get("items", []))

"""Load a YAML file as `MirrorConfig`, or raise one `ConfigError` with every fault."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from mirrorlake.config.document import Document, read
from mirrorlake.config.faults import SettingsFault, dotted, findings_of
from mirrorlake.config.find import near
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.errors import ConfigError, Fault


def load(path: str | Path) -> MirrorConfig:
    """Return the settings of a file.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has faults; each with file, line, path and remedy.

    Example:
        >>> load("conf/missing.yml")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        mirrorlake.errors.ConfigError: 1 fault in the settings
          conf/missing.yml: there is no such file — ...
        nothing was started. Next: mend the lines above and run the same command again
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        why = "there is no such file", near(file)
    except IsADirectoryError:
        why = "this is a folder", "name the YAML file in it"
    except UnicodeDecodeError as error:
        why = f"not UTF-8 text (byte {error.start})", "save it as UTF-8"
    except OSError as error:
        why = f"cannot be read ({error.strerror})", "check its permissions"
    else:
        return loads(text, path=file)
    raise ConfigError([Fault(str(path), "", *why)])


def loads(text: str, *, path: Path | None = None) -> MirrorConfig:
    """Return the settings of a text. Raises ConfigError: as `load`."""
    document = read(text, str(path or "settings"))
    findings = list(document.findings)
    config: MirrorConfig | None = None
    try:
        config = MirrorConfig.model_validate(document.data)
    except ValidationError as error:
        found = findings_of(error, MirrorConfig, document.data)
        # The value of an unresolved reference has only the fault of the reference.
        findings += [item for item in found if not document.is_unresolved(item.place)]
    if findings or config is None:
        raise ConfigError(_faults(findings, document))
    config.read_from(path, text)
    return config


def _faults(findings: list[SettingsFault], document: Document) -> list[Fault]:
    faults = [
        Fault(document.file, dotted(item.place), item.problem, item.remedy, document.line(item.place))
        for item in findings
    ]
    return sorted(faults, key=lambda fault: (fault.line or 0, fault.path))

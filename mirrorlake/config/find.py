"""Find a settings file by its path, from the working directory upwards."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from mirrorlake.errors import ConfigError, Fault

USUAL = Path("conf/mirror.yml")


def find_settings(path: str | Path | None = None) -> Path:
    """Return the path of a settings file.

    A relative path is searched in the working directory and each folder above, up to the folder with `.git` or the root of the
    file system. Without a path, it is the nearest `conf/mirror.yml`, or the only file in the nearest `conf/`.

    Example:
        >>> find_settings("conf/demo.yml")  # doctest: +SKIP
        PosixPath('/home/me/project/conf/demo.yml')
    """
    if path is None:
        return _only_one()
    wanted = Path(path).expanduser()
    if wanted.is_absolute() or wanted.exists():
        return wanted
    found = next((folder / wanted for folder in _upwards() if (folder / wanted).exists()), None)
    if found is not None:
        return found
    raise ConfigError([Fault(str(path), "", f"there is no such file in {Path.cwd()} or above it", near(wanted))])


def _only_one() -> Path:
    for folder in _upwards():
        if (folder / USUAL).exists():
            return folder / USUAL
        several = sorted((folder / USUAL.parent).glob("*.yml"))
        if len(several) == 1:
            return several[0]
        if several:
            names = ", ".join(f"conf/{one.name}" for one in several)
            problem = f"{len(several)} settings files are in {folder / USUAL.parent}, and none was named"
            raise ConfigError([Fault(str(USUAL), "", problem, f"name one of: {names}")])
    problem = f"there is no conf/*.yml in {Path.cwd()} or above it"
    raise ConfigError([Fault(str(USUAL), "", problem, "name a file, or begin with conf/example.yml")])


def _upwards() -> Iterator[Path]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        yield folder
        if (folder / ".git").exists():
            return


def usual_settings() -> Path:
    """Return the path of a new settings file: `conf/mirror.yml` in the nearest folder with a `conf/`, or in the working one."""
    return next((folder / USUAL for folder in _upwards() if (folder / USUAL.parent).is_dir()), Path.cwd() / USUAL)


def near(missing: Path) -> str:
    """Return the remedy for a missing settings file: the names of existing files in the searched folders."""
    places = [missing.parent, *(folder / name for folder in _upwards() for name in (missing.parent, USUAL.parent))]
    several = next((found for place in places if (found := sorted(place.glob("*.yml")))), [])
    if not several:
        return "name an existing one with --conf; conf/example.yml in the repository shows every setting"
    meant = get_close_matches(missing.name, [one.name for one in several], n=1)
    said = f"did you mean {several[0].parent / meant[0]}? " if meant else ""
    return f"{said}{several[0].parent} holds {', '.join(one.name for one in several)}"

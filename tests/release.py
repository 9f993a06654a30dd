"""Make what is released: `make release` builds HEAD twice, in two places, and checks that both are the same, whole and installable.

A wheel and an sdist are a function of the commit: times are the commit's, owners and modes the same everywhere. Whoever has the
commit and the lock can build them again and compare `dist/SHA256SUMS`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packaging.metadata import Metadata

import mirrorlake

ROOT = Path(__file__).parents[1]


def even(sdist: bytes, epoch: int) -> bytes:
    """Return an sdist whose members depend on nothing but their names and contents; setuptools takes times and owners from the disk."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as old,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            if member.isdir():
                continue
            made = tarfile.TarInfo(member.name)
            made.size, made.mtime, made.mode = member.size, epoch, 0o644
            new.addfile(made, old.extractfile(member))
    return packed.getvalue()


def build(place: Path) -> dict[str, bytes]:
    """Build HEAD from a clone in a place, and return the files by name."""
    _run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(place))
    _run("git", "checkout", "--quiet", _said("git", "rev-parse", "HEAD"), folder=place)
    epoch = int(_said("git", "log", "-1", "--format=%ct"))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0", "PYTHONPATH": ""}
    _run(sys.executable, "-m", "build", "--no-isolation", str(place), folder=place, env=environment)
    made = {one.name: one.read_bytes() for one in sorted((place / "dist").iterdir())}
    return {name: even(data, epoch) if name.endswith(".tar.gz") else data for name, data in made.items()}


def check_contents(wheel: bytes, tracked: Iterable[str]) -> None:
    """Check that a wheel holds each tracked file of the package, and nothing but those and its own metadata."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
    wanted = {name for name in tracked if name.startswith("mirrorlake/")}
    if held != wanted:
        raise SystemExit(f"the wheel lacks {sorted(wanted - held)} and holds {sorted(held - wanted)} besides")


def check_metadata(wheel: bytes, changelog: str) -> str:
    """Check the metadata, and that the change log tells of this version; return the version."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
        [place] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        told = Metadata.from_email(opened.read(place), validate=True)
    version = str(told.version)
    if version != mirrorlake.__version__:
        raise SystemExit(f"the wheel is {version}, and the package says {mirrorlake.__version__}")
    if told.description_content_type != "text/markdown" or not told.description or not told.license_files:
        raise SystemExit("the metadata has no readme in Markdown, or no licence")
    if not any(line.startswith(f"## {version} - ") for line in changelog.splitlines()):
        raise SystemExit(f"CHANGELOG.md has no section `## {version} - <date>`")
    return version


def check_installed(wheel: Path, version: str, folder: Path) -> None:
    """Install a wheel alone into an environment of its own, and ask the command for its version."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    # What it depends on comes from the lock's environment; the package itself from the wheel.
    [packages] = (folder / "lib").glob("python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    environment = {**os.environ, "PYTHONPATH": ""}
    said = _said(str(folder / "bin" / "mirrorlake"), "--version", folder=folder, env=environment)
    place = _said(str(python), "-c", "import mirrorlake; print(mirrorlake.__file__)", folder=folder, env=environment)
    if said != version or not Path(place).is_relative_to(folder):
        raise SystemExit(f"what was installed says {said!r} from {place}, not {version}")


def _run(*command: str, folder: Path = ROOT, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _said(*command: str, folder: Path = ROOT, env: dict[str, str] | None = None) -> str:
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Build, check, and put wheel, sdist and their sums into dist/."""
    # Modes of files follow it.
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as scratch:
        first, second = build(Path(scratch, "a")), build(Path(scratch, "another", "place", "with-a-longer-name"))
        if different := sorted(name for name in {*first, *second} if first.get(name) != second.get(name)):
            raise SystemExit(f"two builds of one commit differ: {', '.join(different)}")
        [name] = [one for one in first if one.endswith(".whl")]
        version = check_metadata(first[name], (ROOT / "CHANGELOG.md").read_text())
        check_contents(first[name], _said("git", "ls-files", "mirrorlake").splitlines())
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        for one, data in first.items():
            (dist / one).write_bytes(data)
        check_installed(dist / name, version, Path(scratch, "venv"))
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {one}\n" for one, data in first.items())
    (dist / "SHA256SUMS").write_text(sums)
    sys.stdout.write(f"dist/ holds mirrorlake {version}, the same from two builds:\n{sums}")


if __name__ == "__main__":
    main()

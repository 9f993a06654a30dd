"""What a release holds, and that what is installed is what was locked."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import zipfile
from fnmatch import fnmatch

import pytest

import mirrorlake
from tests.release import ROOT, check_contents, even

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def sdist(*, mtime: int, owner: str, names: tuple[str, ...]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname, member.mode = len(name), mtime, owner, 0o600 + mtime % 8
            made.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_an_sdist_does_not_depend_on_where_and_when_it_was_made() -> None:
    here = sdist(mtime=1_700_000_001, owner="me", names=("p/a.py", "p/b.py"))
    there = sdist(mtime=1_800_000_002, owner="root", names=("p/b.py", "p/a.py"))
    assert here != there
    assert even(here, 7) == even(there, 7)
    with tarfile.open(fileobj=io.BytesIO(even(here, 7))) as opened:
        assert [(one.name, one.mtime, one.mode) for one in opened] == [("p/a.py", 7, 0o644), ("p/b.py", 7, 0o644)]


def test_every_tracked_file_of_the_package_goes_into_the_wheel() -> None:
    """A style sheet or a list of sums that no pattern names would be missing from the wheel, and nowhere else."""
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    tracked = subprocess.run(
        ["git", "ls-files", "mirrorlake"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert tracked
    for name in tracked:
        package, _, file = name.rpartition("/")
        if file.endswith(".py"):
            continue
        rooms = {room: package if room == "*" else room.replace(".", "/") for room in given}
        patterns = [f"{rooms[room]}/{pattern}" for room, several in given.items() for pattern in several]
        assert any(fnmatch(name, pattern) for pattern in patterns), f"{name}: add it to package-data"


def test_a_wheel_that_lacks_a_file_or_holds_tests_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for name in ("mirrorlake/a.py", "tests/b.py", "mirrorlake-1.dist-info/METADATA"):
            made.writestr(name, "")
    with pytest.raises(SystemExit, match=r"lacks \['mirrorlake/py.typed'\] and holds \['tests/b.py'\]"):
        check_contents(packed.getvalue(), ["mirrorlake/a.py", "mirrorlake/py.typed"])


def test_manifests_name_the_image_of_this_release() -> None:
    for name in ("docs/kubernetes.md", "jobs/kubernetes/mirror.yaml", "jobs/kubernetes/spark-application.yaml"):
        tags = re.findall(r"registry\.example/mirrorlake[a-z-]*:(\S+)", (ROOT / name).read_text())
        assert set(tags) == {mirrorlake.__version__}, name


LOCK = (ROOT / "requirements.lock").read_text()


def locked() -> dict[str, str]:
    """Return each requirement of the lock with all that belongs to it."""
    parts = re.split(r"\n(?=\S)", LOCK.strip())
    return {part.split("==")[0]: part for part in parts if not part.startswith("#")}


def test_every_distribution_of_the_lock_has_a_sum_and_no_index() -> None:
    found = locked()
    assert len(found) > 100
    for name, part in found.items():
        assert "==" in part.splitlines()[0], name
        assert "--hash=sha256:" in part, name
    assert "://" not in LOCK, "an address of an index would be trusted by everybody"


def test_every_jar_has_a_sum() -> None:
    files = sorted((ROOT / "mirrorlake" / "runtime").glob("*.sha256"))
    assert files
    for path in files:
        for line in filter(None, path.read_text().splitlines()):
            assert re.fullmatch(r"[0-9a-f]{64}  \S+\.(jar|tar\.gz)", line), f"{path.name}: {line}"


def test_the_audit_is_strict() -> None:
    """A package that the service does not know would else count as one without a weakness."""
    [recipe] = re.findall(r"\$\(BIN\)/pip-audit (.*)", (ROOT / "Makefile").read_text())
    assert {"--strict", "--require-hashes", "--disable-pip"} <= set(recipe.split())

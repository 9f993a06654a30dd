"""What is installed is what was locked: sums for every distribution and jar, and a bill of materials that names them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
            assert re.fullmatch(r"[0-9a-f]{64}  \S+\.jar", line), f"{path.name}: {line}"


def test_the_bill_of_materials_names_versions_and_sums(tmp_path: Path) -> None:
    """By the recipe of `make sbom`, of a part of the lock: the whole takes ten seconds."""
    recipe = re.search(r"cyclonedx-py (requirements .*)", (ROOT / "Makefile").read_text())
    assert recipe
    parts = locked()
    chosen = {name: parts[name] for name in ("confluent-kafka", "pyyaml", "typer")}
    (tmp_path / "part.lock").write_text("\n".join(chosen.values()))
    words = [
        {"requirements.lock": str(tmp_path / "part.lock"), "$(SBOM)": str(tmp_path / "sbom.json")}.get(word, word)
        for word in recipe.group(1).split()
    ]
    command = [sys.executable, "-m", "cyclonedx_py", *words]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    document = json.loads((tmp_path / "sbom.json").read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert {one["name"] for one in document["components"]} == set(chosen)
    for one in document["components"]:
        assert f"{one['name']}=={one['version']}" in chosen[one["name"]]
        sums = {h["content"] for ref in one["externalReferences"] for h in ref.get("hashes", [])}
        assert sums
        assert all(f"sha256:{each}" in chosen[one["name"]] for each in sums)


def test_the_audit_is_strict() -> None:
    """A package that the service does not know would else count as one without a weakness."""
    [recipe] = re.findall(r"\$\(BIN\)/pip-audit (.*)", (ROOT / "Makefile").read_text())
    assert {"--strict", "--require-hashes", "--disable-pip"} <= set(recipe.split())

"""The documentation as a site in build/site: `make links` fails on a link that leads nowhere, `make site` executes notebooks, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
# Plotly sets formulas, which no chart here has, by a script of another host.
_ELSEWHERE = re.compile(r'<script\b[^>]*\bsrc="https?:[^>]*></script>')
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def pages() -> list[Path]:
    """Return the pages, by their places in the repository."""
    own = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "notebooks/README.md")]
    return [page.relative_to(ROOT) for page in (*own, *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]


def linked() -> set[Path]:
    """Return the files that pages link to and that are no pages: pictures, settings, notebooks."""
    found = set[Path]()
    for page in pages():
        text = re.sub(r"^(```|~~~).*?^\1|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
        links = (one for one in _LINK.findall(text) if "://" not in one and not one.startswith("mailto:"))
        found |= {Path((ROOT / page.parent / one).resolve()).relative_to(ROOT) for one in links}
    return {one for one in found if (ROOT / one).is_file()} - set(pages())


def nav() -> list[str]:
    """Return the pages that the site's menu names."""
    text = (ROOT / "docs" / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    found: list[str] = []

    def walk(item: object) -> None:
        if isinstance(item, str):
            found.append(item)
        for each in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
            walk(each)

    walk(yaml.safe_load(text))
    return found


def execute(notebook: Path) -> None:
    """Execute a notebook in its folder, on brokers that it starts itself, and keep its outputs in it.

    Raises:
        CellExecutionError: a cell failed.
    """
    # Only here, since they take longer to load than a site without them takes to build.
    import nbformat
    from nbclient import NotebookClient

    content = nbformat.read(notebook, as_version=4)
    sys.stderr.write(f"{notebook.name}: executed\n")
    # A page has no kernel: the state of widgets would ask another host for scripts that show them.
    client = NotebookClient(
        content, timeout=900, store_widget_state=False, resources={"metadata": {"path": notebook.parent}}
    )
    # With its script in the page.
    client.execute(env={**os.environ, "PLOTLY_RENDERER": "notebook"})
    for output in (output for cell in content.cells for output in cell.get("outputs", [])):
        if "text/html" in output.get("data", {}):
            output["data"]["text/html"] = _ELSEWHERE.sub("", output["data"]["text/html"])
    nbformat.write(content, notebook)


def build(*, executes: bool = False) -> int:
    """Put the pages and what they link to side by side as in the repository, and build the site; return mkdocs' exit code."""
    source = BUILD / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    for file in (*pages(), *sorted(linked())):
        place = source / "pages" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, place)
    shutil.copyfile(ROOT / "docs" / "mkdocs.yml", source / "mkdocs.yml")
    for notebook in sorted((source / "pages" / "notebooks").glob("*.ipynb")) if executes else ():
        execute(notebook)
    command = [sys.executable, "-m", "mkdocs", "build", "--clean", "--config-file", str(source / "mkdocs.yml")]
    # Material tells of its successor, in colours.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    told = [line for line in (done.stderr + done.stdout).splitlines() if line.strip() and not line.startswith("INFO")]
    sys.stderr.write("".join(f"{line}\n" for line in told))
    return done.returncode


if __name__ == "__main__":
    sys.exit(build(executes="--execute" in sys.argv))

"""Test the import rules that import-linter cannot express. `make lint` runs import-linter."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("kit", "scenarios") for path in (ROOT / folder).rglob("*.py"))
SHARED = sorted(
    path for folder in ("catalog", "contract", "linux", "spec") for path in (ROOT / "scenarios" / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_names_stay_in_their_folder_and_imports_are_absolute(path):
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            private = [a.name for a in node.names if a.name.startswith("_") and not a.name.startswith("__")]
            ours = (node.module or "").split(".")[0] in {"kit", "scenarios"}
            assert not (ours and private and not (node.module or "").startswith(package)), (
                f"line {node.lineno}: {private}"
            )


@pytest.mark.parametrize("path", SHARED, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_both_sides_import_needs_the_standard_library_alone(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            outside = {name.split(".")[0] for name in modules} - sys.stdlib_module_names - {"scenarios"}
            assert not outside, f"line {node.lineno}: {outside}"


def test_kit_has_few_top_level_modules():
    assert {path.name for path in (ROOT / "kit").glob("*.py")} == {"__init__.py", "__main__.py", "assets.py"}


def test_the_docker_folder_never_shadows_docker_py():
    assert not (ROOT / "docker/__init__.py").exists()

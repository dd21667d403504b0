"""Who may import what: the orchestrator and the worker meet in the contract, the specification and the catalogue."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = {"torch", "tensorflow", "keras", "onnx", "onnxruntime", "jax"}
SHARED = {f"scenarios.{name}" for name in ("codec", "contract", "spec", "catalog", "flops", "caches", "allocators")}
STANDARD_LIBRARY_ONLY = [
    "scenarios/codec.py",
    "scenarios/contract.py",
    "scenarios/spec.py",
    "scenarios/flops.py",
    "scenarios/caches.py",
    "scenarios/allocators.py",
    *(str(p.relative_to(ROOT)) for p in (ROOT / "scenarios/catalog").glob("*.py")),
]
PURE = [
    "kit/analysis.py",
    "kit/judgement/cautions.py",
    "kit/judgement/cell_rules.py",
    "kit/judgement/ceilings.py",
    "kit/comparison/compare.py",
    "kit/judgement/context.py",
    "kit/judgement/diagnosis.py",
    "kit/doctor/checks.py",
    "kit/doctor/facts.py",
    "kit/doctor/findings.py",
    "kit/doctor/gpu_checks.py",
    "kit/comparison/differences.py",
    "kit/figures.py",
    "kit/intervals.py",
    "kit/judgement/judge.py",
    "kit/judgement/observed.py",
    "kit/judgement/peaks.py",
    "kit/plan.py",
    "kit/judgement/robust.py",
    "kit/schedule.py",
    "kit/comparison/side_by_side.py",
    "kit/judgement/step.py",
    "kit/verdict.py",
    "kit/report/conditions.py",
    "kit/report/evidence.py",
    "kit/report/tuned.py",
    "kit/requests.py",
    "kit/report/view.py",
]


def imported(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", files("kit"), ids=lambda p: str(p.relative_to(ROOT)))
def test_kit_imports_no_framework_and_of_scenarios_only_the_contract(path):
    names = imported(path)
    assert not {n.split(".")[0] for n in names} & FRAMEWORKS
    foreign = {n for n in names if n.startswith("scenarios.") and not any(n.startswith(s) for s in SHARED)}
    assert not foreign
    if path.relative_to(ROOT).as_posix() not in ("kit/engines/docker.py", "kit/building/images.py"):
        assert not any(n == "docker" or n.startswith("docker.") for n in names)


@pytest.mark.parametrize("path", files("scenarios"), ids=lambda p: str(p.relative_to(ROOT)))
def test_scenarios_never_import_kit_and_name_a_framework_only_in_its_adapter(path):
    names = {n.split(".")[0] for n in imported(path)}
    assert "kit" not in names
    if path.parent.name != "frameworks":
        assert not names & FRAMEWORKS


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_what_both_sides_import_needs_the_standard_library_alone(name):
    import sys

    outside = {n.split(".")[0] for n in imported(ROOT / name)} - set(sys.stdlib_module_names) - {"scenarios"}
    assert not outside


@pytest.mark.parametrize("name", PURE)
def test_what_is_pure_does_no_input_or_output(name):
    names = {n.split(".")[0] for n in imported(ROOT / name)}
    assert not names & {"subprocess", "socket", "requests", "docker", "os", "shutil", "psutil"}


def test_the_docker_folder_never_shadows_docker_py():
    assert not (ROOT / "docker/__init__.py").exists()

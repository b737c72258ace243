"""What importing costs, and which way imports point."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "purectrl"
LAYERS = [
    "signals",
    "core",
    "systems",
    "theory",
    "control",
    "diffusion",
    "problems",
    "algorithms",
    "runs",
    "labels",
    "paper",
    "report",
    "cli",
]


def imported_by(statement):
    """The top-level modules that a fresh interpreter has loaded after `statement`."""
    code = f"import sys; {statement}; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_package_loads_neither_torch_nor_diffusers_nor_even_jax():
    assert not imported_by("import purectrl") & {"torch", "diffusers", "jax", "ray", "matplotlib", "gymnasium"}


def test_signals_are_handled_before_anything_slow_is_imported():
    """A signal during the imports must find its handler: what comes before it is the standard library alone."""
    added = imported_by("import purectrl.__main__") - imported_by("import signal, typing, importlib, contextlib")
    assert added == {"purectrl"}


def test_starting_the_program_loads_nothing_heavy():
    commands = ("list", "paper")
    for command in commands:
        statement = f"from purectrl.cli import main; main([{command!r}])"
        code = f"import sys; {statement}; print(sorted({{'jax', 'matplotlib', 'ray', 'torch'}} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", command


def test_core_is_numpy_only():
    ours = imported_by("import purectrl.core") - imported_by("import numpy.random") - set(sys.stdlib_module_names)
    assert {name for name in ours if not name.startswith("_")} == {"purectrl"}


def test_importing_costs_less_than_two_and_a_half_times_jax():
    def seconds(module):
        code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
        run = lambda: float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)  # noqa: E731
        return min(run() for _ in range(3))

    assert seconds("purectrl") < 2.5 * seconds("jax")


def test_imports_point_one_way():
    """core ← systems ← theory, control, diffusion ← problems, algorithms ← runs ← paper, report ← cli."""
    for path in SOURCE.rglob("*.py"):
        layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if layer not in LAYERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("purectrl."):
                target = node.module.split(".")[1]
                assert target in LAYERS, f"{path} imports {node.module}"
                assert LAYERS.index(target) <= LAYERS.index(layer), f"{path} imports {node.module}"
                for apart in (("theory", "control", "diffusion"), ("paper", "report")):
                    assert layer == target or not {layer, target} <= set(apart), f"{path} imports {node.module}"


def test_every_public_name_exists():
    import purectrl
    import purectrl.control
    import purectrl.diffusion
    import purectrl.runs.api
    import purectrl.theory

    parts = (purectrl.core, purectrl.theory, purectrl.control, purectrl.diffusion, purectrl.runs.api)
    for module in (purectrl, *parts):
        assert all(hasattr(module, name) for name in module.__all__)
        assert len(set(module.__all__)) == len(module.__all__)
    assert set(purectrl.core.__all__) <= set(purectrl.__all__)

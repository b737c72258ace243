"""`docs/security.md` states the limits that the code has, and names tests that exist."""

import ast
import re
import sys
from pathlib import Path

from purectrl.core import io
from purectrl.report.page import media

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
ALLOWED = {
    ("cli/__init__.py", "open"),  # standard output that the parent process has closed
    ("report/page/__init__.py", "read_text"),  # files of the package
    ("labels/server.py", "read_text"),  # files of the package
    ("control/export.py", "read_text"),  # a template of the package
    ("runs/memory.py", "read_text"),  # the kernel's account of memory
    ("systems/video.py", "read_bytes"),  # a temporary file
    ("core/references.py", "read_bytes"),  # the checksum of code
    ("runs/store.py", "unlink"),  # of names, which removes a link and not what it points to
    ("runs/tracking.py", "rmtree"),  # which refuses links
    ("runs/submitted.py", "rmtree"),  # of a new directory of its own, which only this user can write
    ("diffusion/digits/classifier.py", "load_file"),  # weights of the package
    ("diffusion/rewards/aesthetic.py", "load_file"),  # weights at a path that the user may keep anywhere
}
"""Where files are accessed without `core/io.py`."""
ACCESS = {"open", "read_bytes", "read_text", "write_bytes", "write_text", "touch", "unlink", "rmtree", "load_file"}


def test_the_limits_are_those_of_the_code():
    search = sys.modules["purectrl.report.page.discover"]
    for words in (
        f"at most {io.MAX_JSON // 2**20} MB",
        f"at most {io.MAX_LINES // 2**30} GB",
        f"header of a safetensors file at most {io.MAX_HEADER // 2**20} MB",
        f"stops at {search.MAX_DIRECTORIES:,} directories or a million",
        f"{media.MAX_BYTES // 10**6} MB in total",
    ):
        assert words in " ".join(PAGE.split()), words
    assert search.MAX_ENTRIES == 1_000_000


def test_the_tests_that_it_names_exist():
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert len(named) == 5
    assert all((ROOT / name).is_file() for name in named)


def test_files_of_a_run_are_opened_in_one_place():
    found = set()
    for path in (ROOT / "src" / "purectrl").rglob("*.py"):
        file = path.relative_to(ROOT / "src" / "purectrl").as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                imported = name == "read_bytes" and isinstance(node.func, ast.Name)  # that of core/io.py
                if name in ACCESS and not imported and not _is_other_open(node):
                    found.add((file, name))
    assert {entry for entry in found if entry[0] != "core/io.py"} == ALLOWED


def _is_other_open(node):
    """Opening a problem, a store or an image, and not a file."""
    return isinstance(node.func, ast.Attribute) and node.func.attr == "open"

"""Versions of packages, and what to install if one is missing."""

import importlib.metadata

import pytest

from purectrl.core import InputError
from purectrl.runs.process import versions


def test_versions_are_those_of_the_installed_packages():
    assert versions(("numpy",))["numpy"] == importlib.metadata.version("numpy")


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("torch", "pip install -c constraints.txt '.[diffusion]'"),
        ("purectrl", "pip install -c constraints.txt '.'"),
        ("jax", "pip install -c constraints.txt '.'"),
    ],
)
def test_the_remedy_names_the_right_extra(missing, command, monkeypatch):
    """Defect B4: every missing package was blamed on the diffusion extra."""

    def version(name):
        if name == missing:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(InputError) as error:
        versions(("numpy", "jax", "torch"))
    assert str(error.value) == f"{missing} is not installed; `{command}` installs it"

"""A sweep shared by the tests of the report page."""

import shutil

import pytest
from pages import make


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A sweep of two algorithms with two seeds each."""
    folder = tmp_path_factory.mktemp("sweep")
    for algorithm in ("pure-base", "pure-low-switch"):
        for seed in (0, 1):
            make(folder / f"{algorithm}-seed{seed}", algorithm=algorithm, seed=seed)
    return folder


@pytest.fixture
def sweep(whole, tmp_path):
    """A copy of the sweep that a test may change."""
    shutil.copytree(whole, tmp_path / "sweep")
    return tmp_path / "sweep"

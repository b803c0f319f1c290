"""Lets the tests here import `toy`, and keeps its kernels out of everyone else's catalogue."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onegraph.kernels import catalogue

sys.path.insert(0, str(Path(__file__).parent))

import toy


@pytest.fixture(scope="module", autouse=True)
def _toy_kernels() -> Iterator[None]:
    """The toy's kernels have no .cu file, which the catalogue's own tests would object to."""
    catalogue._registry.update(toy.KERNELS)
    yield
    for name in toy.KERNELS:
        del catalogue._registry[name]
    catalogue.catalogue.cache_clear()

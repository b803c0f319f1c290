"""Lists the packages of the four top-level folders; everything else stands in pyproject.toml.

pyproject.toml can map a folder to an import name, but only a listing in code finds the subpackages
of a mapped folder, so that a new one needs no line anywhere.
"""

from setuptools import find_packages, setup

LAYERS = ("guards", "kernels", "stages", "trainer")

setup(
    packages=[
        f"onegraph.{package}"
        for layer in LAYERS
        for package in (layer, *(f"{layer}.{sub}" for sub in find_packages(layer)))
    ],
)

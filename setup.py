"""Which packages the distribution holds; everything else about it stands in `pyproject.toml`.

The three shelves lie at the top of the checkout and are imported as `kvpolicy.grammar`, `kvpolicy.policies` and
`kvpolicy.adapters` (docs/adr/0001). Packages are found, not listed: a list would drop a new sub-package from the
wheel without a word. `tests/test_packaging.py` compares the wheel with the tree all the same.
"""

from setuptools import find_packages, setup

SHELVES = ("grammar", "policies", "adapters")

setup(
    packages=[
        *find_packages(include=["kvpolicy", "kvpolicy.*"]),
        *(f"kvpolicy.{name}" for shelf in SHELVES for name in find_packages(include=[shelf, f"{shelf}.*"])),
    ],
    package_dir={f"kvpolicy.{shelf}": shelf for shelf in SHELVES},
)

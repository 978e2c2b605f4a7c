"""What a policy's tests would let pass: every mutant of it that none of them notices.

Runs the tests on each mutant. One that decides nothing otherwise is none (`diff` tells), one that `check` refuses could
never be in force, and one that changes quotas alone is beyond what a test of the language can state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvpolicy.faults import ERROR, PolicyFault
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.compile import compile
from kvpolicy.policy.diff.diff import difference
from kvpolicy.policy.mutants import Mutant, mutants
from kvpolicy.policy.policy import Policy
from kvpolicy.policy.testing import run_tests


@dataclass(slots=True)
class Mutation:
    """noticed: mutants that a test fails on; refused: that `check` refuses; same: that decide nothing otherwise;
    quotas: that change quotas alone: how much may be kept, not what a span gets, so no `expect` sees it."""

    noticed: int
    refused: int
    same: int
    quotas: int
    survivors: list[Mutant]

    @property
    def of(self) -> int:
        """How many mutants the tests had to notice."""
        return self.noticed + len(self.survivors)

    def as_json(self) -> dict[str, object]:
        """`mutation` of `kvp test --mutate --format json`."""
        rows = [
            {"file": m.place.file, "line": m.place.line, "column": m.place.column, "change": m.change}
            for m in self.survivors
        ]
        return {
            "of": self.of,
            "noticed": self.noticed,
            "refused": self.refused,
            "same": self.same,
            "quotas": self.quotas,
            "survivors": rows,
        }


def mutate(policy: Policy, tell: Callable[[int], None] | None = None) -> Mutation:
    """Try the tests of a policy, which all pass, on its mutants. tell: is told how many have been tried."""
    found = Mutation(0, 0, 0, 0, [])
    for number, mutant in enumerate(mutants(policy.files)):
        if tell is not None:
            tell(number)
        try:
            other = compile(mutant.files)
            noticed = not run_tests(other).fine
        except PolicyFault:
            found.refused += 1
            continue
        if noticed:
            found.noticed += 1
        elif any(fault.severity == ERROR for fault in analyse(mutant.files)):
            found.refused += 1
        elif (differs := difference(policy, other)).same:
            found.same += 1
        elif differs.of_quotas_alone:
            found.quotas += 1
        else:
            found.survivors.append(mutant)
    return found

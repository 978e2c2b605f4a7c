"""Guards as formulas over opaque atoms: whether one holds only where another does is tried for every truth of the
atoms. Part of the slow and obvious `reference`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from kvpolicy.language import syntax
from tests.policy.reference_selectors import COMPARE

Let = Callable[[tuple[str, ...], str], tuple[syntax.Expression, str]]  # path, group -> what it names, and its group


def guard_within(
    narrow: syntax.Expression, narrow_group: str, wide: syntax.Expression, wide_group: str, let: Let
) -> bool:
    """Whether the second holds wherever the first does."""
    left, right = formula(narrow, let, narrow_group), formula(wide, let, wide_group)
    atoms = sorted(set(atoms_of(left)) | set(atoms_of(right)))
    tables = (dict(zip(atoms, truths, strict=True)) for truths in itertools.product((True, False), repeat=len(atoms)))
    return all(true(right, table) for table in tables if true(left, table))


def formula(e: syntax.Expression, let: Let, group: str):
    if isinstance(e, syntax.Unary) and e.operator == "not":
        return ("not", formula(e.operand, let, group))
    if isinstance(e, syntax.Binary) and e.operator in ("and", "or"):
        return (e.operator, formula(e.left, let, group), formula(e.right, let, group))
    if isinstance(e, syntax.Binary) and e.operator in COMPARE:
        left, right = spelt(e.left, let, group), spelt(e.right, let, group)
        if e.operator in (">", ">="):
            left, right = right, left
        operator = {">": "<", ">=": "<="}.get(e.operator, e.operator)
        if operator == "<=":  # a <= b: not b < a
            return ("not", ("atom", f"{right} < {left}"))
        if operator in ("=", "!="):
            atom = ("atom", " = ".join(sorted((left, right))))
            return atom if operator == "=" else ("not", atom)
        return ("atom", f"{left} < {right}")
    return ("atom", spelt(e, let, group))


def spelt(e: syntax.Expression, let: Let, group: str) -> str:
    if isinstance(e, syntax.Literal):
        return repr(e.quantity.value)
    if isinstance(e, syntax.Name):
        if e.path[0] in ("yes", "no", "never"):
            return e.path[0]
        value, home = let(e.path, group)
        return spelt(value, let, home)
    if isinstance(e, syntax.Call):
        inner = [".".join(a.path) if isinstance(a, syntax.Name) else spelt(a, let, group) for a in e.arguments]
        if e.within is not None:
            inner.append("within " + spelt(e.within, let, group))
        return f"{e.function}({', '.join(inner)})"
    if isinstance(e, syntax.Unary):
        return f"({e.operator} {spelt(e.operand, let, group)})"
    return f"({spelt(e.left, let, group)} {e.operator} {spelt(e.right, let, group)})"


def atoms_of(tree):
    if tree[0] == "atom":
        yield tree[1]
    else:
        for part in tree[1:]:
            yield from atoms_of(part)


def true(tree, table: dict[str, bool]) -> bool:
    if tree[0] == "atom":
        return table[tree[1]]
    if tree[0] == "not":
        return not true(tree[1], table)
    if tree[0] == "and":
        return true(tree[1], table) and true(tree[2], table)
    return true(tree[1], table) or true(tree[2], table)

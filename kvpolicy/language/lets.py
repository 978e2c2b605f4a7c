"""Every `let`, in an order in which each comes after those it uses: circles, and names that stand for too much.

The first pass of `check`; it works on a list, not by recursion, for a chain of names may be as long as a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes, syntax
from kvpolicy.language.scope import Key, Scope
from kvpolicy.language.typer import Typer

DEEPEST, LARGEST = 100, 2_000  # levels and parts of what a name stands for, all names in it written out


def names_in(node: syntax.Expression) -> Iterator[tuple[syntax.Name, int]]:
    """Every name of an expression that may be a `let`, with its depth."""
    waiting: list[tuple[syntax.Expression, int]] = [(node, 1)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, syntax.Name):
            yield part, depth
        elif isinstance(part, syntax.Unary):
            waiting.append((part.operand, depth + 1))
        elif isinstance(part, syntax.Binary):
            waiting += [(part.left, depth + 1), (part.right, depth + 1)]
        elif isinstance(part, syntax.Call):
            waiting += [(argument, depth + 1) for argument in part.arguments]
            if part.within is not None:
                waiting.append((part.within, depth + 1))


def size_of(node: syntax.Expression) -> tuple[int, int]:
    """Parts and levels of an expression as written."""
    parts, deepest = 0, 0
    waiting: list[tuple[syntax.Expression, int]] = [(node, 1)]
    while waiting:
        part, depth = waiting.pop()
        parts, deepest = parts + 1, max(deepest, depth)
        if isinstance(part, syntax.Unary):
            waiting.append((part.operand, depth + 1))
        elif isinstance(part, syntax.Binary):
            waiting += [(part.left, depth + 1), (part.right, depth + 1)]
        elif isinstance(part, syntax.Call):
            waiting += [(argument, depth + 1) for argument in part.arguments]
    return parts, deepest


def check_lets(scope: Scope, typer: Typer, faults: list[Diagnostic]) -> None:
    """Settle the type of every `let`, those that others use first."""
    uses = {
        key: [(found, depth) for name, depth in names_in(let.value) if (found := scope.find_let(name.path, key[0]))]
        for key, let in scope.lets.items()
    }
    sizes: dict[Key, tuple[int, int]] = {}
    users: dict[Key, list[Key]] = {}
    for key, used in uses.items():
        for other in dict.fromkeys(other for other, _ in used):
            users.setdefault(other, []).append(key)
    unsettled = {key: len({other for other, _ in used}) for key, used in uses.items()}
    ready = [key for key, count in unsettled.items() if count == 0]
    for key in ready:  # it grows
        sizes[key] = _size(key, uses[key], sizes, scope, faults)
        typer.settle_let(key)
        for user in users.get(key, ()):
            unsettled[user] -= 1
            if unsettled[user] == 0:
                ready.append(user)
    if len(ready) < len(unsettled):
        _tell_circle([key for key in scope.lets if key not in sizes], uses, scope, faults)


def _size(
    key: Key, uses: list[tuple[Key, int]], sizes: dict[Key, tuple[int, int]], scope: Scope, faults: list[Diagnostic]
) -> tuple[int, int]:
    """Parts and levels of what a name stands for; of too much, those of a name."""
    let = scope.lets[key]
    parts, depth = size_of(let.value)
    parts += sum(sizes[used][0] for used, _ in uses)
    depth = max([depth, *(at + sizes[used][1] for used, at in uses)])
    if parts <= LARGEST and depth <= DEEPEST:
        return parts, depth
    message = f"'{let.name}' stands for more than {LARGEST} parts or {DEEPEST} levels, all names written out"
    faults.append(codes.SYNTAX.at(let.place, message, fix="say it with fewer names"))
    return 1, 1


def _tell_circle(
    left: list[Key], uses: dict[Key, list[tuple[Key, int]]], scope: Scope, faults: list[Diagnostic]
) -> None:
    """One message for each circle among the names that are left."""
    told: set[Key] = set()
    circling = set(left)
    for start in left:
        path: dict[Key, None] = {}
        key: Key | None = start
        while key is not None and key not in path and key not in told:
            path[key] = None
            key = next((used for used, _ in uses[key] if used in circling), None)
        if key is not None and key in path:
            circle = list(path)[list(path).index(key) :]
            let = scope.lets[circle[0]]
            way = " → ".join(name for _, name in (*circle, circle[0]))
            notes = tuple(Note(scope.lets[other].place, "and this") for other in circle[1:])
            message = f"'{let.name}' is defined by itself: {way}"
            faults.append(codes.UNKNOWN_NAME.at(let.place, message, notes=notes, fix="give one of them a value"))
        told.update(path)

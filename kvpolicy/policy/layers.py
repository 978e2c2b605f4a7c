"""Which layer is later than which, over all files of a set.

Own layers and the groups of used policies are put in order by the `layers` statements; what these leave out follows
fixed rules: a used group comes before the layers of the file that uses it, own layers that are not listed come last,
in order of appearance, the layer of the rules outside any `layer` block before the blocks of its file. Two groups that
nobody ordered stay without an order: `check` asks for one where they overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath

from kvpolicy.language import syntax
from kvpolicy.language.codes import PRECEDENCE_CYCLE
from kvpolicy.language.load import group_name
from kvpolicy.language.scope import home_layer
from kvpolicy.policy.settle import fault

Layer = tuple[str, str]  # group ("" for the set's own files), name


def shown(layer: Layer) -> str:
    """`workload`, `continuum.workload`."""
    group, name = layer
    return f"{group}.{name}" if group else name


def own_layers(file: syntax.File) -> tuple[str, ...]:
    """A file's layers, earliest first, before any `layers` statement."""
    return tuple(dict.fromkeys((home_layer(file), *file.layer_order)))


def used_groups(member: syntax.Member, files: syntax.FileSet) -> tuple[str, ...]:
    """The groups that a file's `use` statements bring in. A file that another `use` has brought in before keeps the
    name that it got there."""
    found = []
    for use in member.file.uses:
        named = [m for m in files.members if m.group and _stem(m.file.name) == _stem(use.target)]
        own = [m for m in named if m.group == group_name(use, m.file)]
        found += [m.group for m in (*own, *named)[:1]]
    return tuple(dict.fromkeys(found))


def _stem(name: str) -> str:
    return PurePath(name).name.removesuffix(".kvp")


@dataclass(frozen=True, slots=True)
class LayerOrder:
    """The settled order: `later[a]` are the layers that come after `a`."""

    later: dict[Layer, frozenset[Layer]] = field(default_factory=dict)

    def is_later(self, one: Layer, other: Layer) -> bool:
        """Whether `one` comes after `other`."""
        return one in self.later.get(other, frozenset())

    def after(self, layer: Layer) -> frozenset[Layer]:
        """The layers that come after one."""
        return self.later.get(layer, frozenset())

    def ordered(self, one: Layer, other: Layer) -> bool:
        """Whether the two are one layer or have an order."""
        return one == other or self.is_later(one, other) or self.is_later(other, one)


def order_layers(files: syntax.FileSet) -> LayerOrder:
    """Read the order of all layers. Raises PolicyFault where the statements contradict each other."""
    edges: dict[Layer, set[Layer]] = {(m.group, name): set() for m in files.members for name in own_layers(m.file)}
    groups = frozenset(m.group for m in files.members if m.group)
    for group in dict.fromkeys(m.group for m in files.members):
        _order_group([m for m in files.members if m.group == group], files, groups, edges)
    return LayerOrder({layer: frozenset(_reach(layer, edges, files)) for layer in edges})


def _order_group(
    members: list[syntax.Member], files: syntax.FileSet, groups: frozenset[str], edges: dict[Layer, set[Layer]]
) -> None:
    group = members[0].group
    own = list(dict.fromkeys(name for m in members for name in own_layers(m.file)))
    used = list(dict.fromkeys(g for m in members for g in used_groups(m, files)))

    def block(name: str) -> frozenset[Layer]:
        """The layers that a name in a `layers` statement stands for."""
        if name in own:
            return frozenset({(group, name)})
        inner = f"{group}.{name}" if group else name
        return _closure(inner if inner in groups else name, files)

    def before(first: frozenset[Layer], second: frozenset[Layer]) -> None:
        for layer in first - second:
            edges.setdefault(layer, set()).update(second - first)

    listed: list[str] = []
    for member in members:
        for statement in member.file.layers:
            names = [n for n in statement.names if block(n)]
            for first, second in pairwise(names):
                before(block(first), block(second))
            listed += [n for n in names if n not in listed]
    rest = [n for n in own if n not in listed]
    for name in used:
        if name not in listed and name.removeprefix(f"{group}.") not in listed:
            for layer in own:
                before(_closure(name, files), block(layer))
    for name in listed if rest else ():
        before(block(name), block(rest[0]))
    for name, layer in pairwise(rest):  # what comes after more than one follows from that
        before(block(name), block(layer))


def _closure(group: str, files: syntax.FileSet) -> frozenset[Layer]:
    """A group's own layers and those of every group it uses."""
    found: set[Layer] = set()
    seen: set[str] = set()
    waiting = [group]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for member in files.members:
            if member.group == name:
                found.update((name, layer) for layer in own_layers(member.file))
                waiting += used_groups(member, files)
    return frozenset(found)


def _reach(start: Layer, edges: dict[Layer, set[Layer]], files: syntax.FileSet) -> set[Layer]:
    found: set[Layer] = set()
    waiting = list(edges[start])
    while waiting:
        layer = waiting.pop()
        if layer not in found:
            found.add(layer)
            waiting += edges.get(layer, ())
    if start in found:
        place = next((s.place for m in files.members for s in m.file.layers), None)
        if place is not None:
            raise fault(PRECEDENCE_CYCLE, place, f"layer '{shown(start)}' would come before itself")
    return found

"""What the names of a file set stand for: every `let`, rule, layer and group, by the group it belongs to.

Built by `check` from the loaded files, asked by every pass of it. Names of a used policy are seen inside it as they
are, from outside behind the group's name (`continuum.slow_tool`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

from kvpolicy.language import syntax

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Key = tuple[str, str]  # group, name


@dataclass(slots=True)
class Scope:
    """Names by (group, name). `lost`: words of text that was passed over after a fault, and may have been names."""

    lets: dict[Key, syntax.Let] = field(default_factory=dict)
    rules: dict[Key, syntax.Rule] = field(default_factory=dict)
    layers: dict[Key, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)  # FILE:LINE of rules without a label
    lost: frozenset[str] = frozenset()

    def find_let(self, path: tuple[str, ...], group: str) -> Key | None:
        """The `let` that a name means, seen from a group."""
        inner = ".".join((*((group,) if group else ()), *path[:-1]))
        for key in ((inner, path[-1]), (".".join(path[:-1]), path[-1])):
            if key in self.lets:
                return key
        return None

    def find_rule(self, path: tuple[str, ...], group: str) -> syntax.Rule | None:
        """The rule that a path means: LABEL, GROUP.LABEL, LAYER.LABEL or GROUP.LAYER.LABEL."""
        for within in ((*((group,) if group else ()), *path[:-1]), path[:-1]):
            found = self.rules.get((".".join(within), path[-1]))
            if found is not None:
                return found
        for (owner, label), rule in self.rules.items():
            if label != path[-1] or len(path) < 2 or rule.layer is None:
                continue
            names = {f"{owner}.{rule.layer}" if owner else rule.layer}
            if owner == group:
                names.add(rule.layer)
            if ".".join(path[:-1]) in names:
                return rule
        return None

    def rule_names(self, group: str) -> list[str]:
        """Every rule as it may be written in a group."""
        return [label if owner in {"", group} else f"{owner}.{label}" for owner, label in self.rules]


def home_layer(file: syntax.File) -> str:
    """The layer of a file's rules outside any `layer` block."""
    return file.header.name if file.header is not None else PurePath(file.name).stem


def scope_of(files: syntax.FileSet, skipped: Iterable[str] = ()) -> Scope:
    """The names of a set; of one defined twice, the first definition."""
    scope = Scope(lost=frozenset(word for text in skipped for word in _WORD.findall(text)))
    for member in files.members:
        group, file = member.group, member.file
        if group:
            scope.groups[group] = None
        for let in file.lets:
            scope.lets.setdefault((group, let.name), let)
        for layer in (home_layer(file), *file.layer_order):
            scope.layers[group, layer] = None
        for rule in file.rules:
            if rule.label is not None:
                scope.rules.setdefault((group, rule.label), rule)
            else:
                scope.places.add(f"{rule.place.file}:{rule.place.line}")
    return scope

"""The outline of a file: its policy, layers with their rules, values, workflows with their nodes, limits and tests.

Read from the words alone (`reader`), so a broken file has one, too.
"""

from __future__ import annotations

from lsprotocol import types

from kvpolicy.lsp import roles
from kvpolicy.lsp.lines import Lines
from kvpolicy.lsp.reader import Reading
from kvpolicy.lsp.roles import Occurrence

_KINDS = {
    roles.RULE: types.SymbolKind.Method,
    roles.LET: types.SymbolKind.Constant,
    roles.LAYER: types.SymbolKind.Namespace,
    roles.WORKFLOW: types.SymbolKind.Class,
    roles.NODE: types.SymbolKind.Field,
    roles.POLICY: types.SymbolKind.Module,
    roles.USED: types.SymbolKind.Package,
    roles.TEST: types.SymbolKind.Event,
}
MOST = 5000


def _is_shown(one: Occurrence) -> bool:
    return one.of in {"file", "packaged"} if one.role == roles.USED else one.gives


def outline(reading: Reading, lines: Lines) -> list[types.DocumentSymbol]:
    """What the file gives names to, what lies within another inside it."""
    top: list[types.DocumentSymbol] = []
    open_: list[tuple[int, types.DocumentSymbol]] = []
    given = [one for one in reading.found if one.role in _KINDS and _is_shown(one)]
    for one in given[:MOST]:
        end = max(one.whole, one.end)
        symbol = types.DocumentSymbol(
            name=one.name or '""',
            kind=_KINDS[one.role],
            range=lines.range(one.start, end),
            selection_range=lines.range(one.start, one.end),
            detail=one.role,
            children=[],
        )
        while open_ and open_[-1][0] <= one.start:
            open_.pop()
        siblings = open_[-1][1].children if open_ else top
        assert isinstance(siblings, list)
        siblings.append(symbol)
        open_.append((end, symbol))
    return top

"""What the protocol asks of an open text, answered in the protocol's own types.

Each function takes the texts as they are now and gives the answer; `server` calls them in its second thread.
"""

from __future__ import annotations

from difflib import SequenceMatcher

from lsprotocol import types

from kvpolicy.language.format import format_text
from kvpolicy.language.reading import identity_of
from kvpolicy.lsp import hover as meaning
from kvpolicy.lsp import roles
from kvpolicy.lsp.actions import Mend, mends
from kvpolicy.lsp.completion import offers
from kvpolicy.lsp.documents import Document, normal
from kvpolicy.lsp.lines import Lines
from kvpolicy.lsp.names import Symbol, symbol, targets, uses
from kvpolicy.lsp.project import Part, Project, View
from kvpolicy.lsp.rename import Edit, renameable, renamed
from kvpolicy.lsp.symbols import outline
from kvpolicy.lsp.told import location_of

_SMALL = 200_000  # letters of a text whose own words are offered as they are now; of a larger one, as last checked
_MANY_LINES = 3_000  # lines that differ beyond which they are replaced together
_ICONS = {
    roles.STATEMENT: types.CompletionItemKind.Keyword,
    roles.CLAUSE: types.CompletionItemKind.Keyword,
    roles.KIND: types.CompletionItemKind.Class,
    roles.ATTRIBUTE: types.CompletionItemKind.Field,
    roles.PROPERTY: types.CompletionItemKind.Property,
    roles.EVENT: types.CompletionItemKind.Event,
    roles.FUNCTION: types.CompletionItemKind.Function,
    roles.RULE: types.CompletionItemKind.Method,
    roles.LET: types.CompletionItemKind.Constant,
    roles.LAYER: types.CompletionItemKind.Module,
    roles.USED: types.CompletionItemKind.Module,
    roles.CONSTANT: types.CompletionItemKind.EnumMember,
}


def hover(project: Project, document: Document, position: types.Position) -> types.Hover | None:
    """The meaning of a word."""
    view, lines, offset = _seen(project, document, position)
    found = meaning.hover(view, offset)
    if found is None:
        return None
    text, one = found
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), lines.range(one.start, one.end))


def completion(
    project: Project, document: Document, position: types.Position, view: View | None
) -> types.CompletionList:
    """What may be written; `view`: the set as it was last checked."""
    text = normal(document.text)
    lines = Lines(text, document.lines.encoding)
    cursor = lines.offset(position)
    found, begin = offers(text, cursor, view, project.reading if len(text) < _SMALL else None)
    stretch = lines.range(begin, cursor)
    items = [
        types.CompletionItem(
            label=offer.label,
            kind=_ICONS.get(offer.role, types.CompletionItemKind.Text),
            documentation=types.MarkupContent(types.MarkupKind.Markdown, offer.meaning),
            text_edit=types.TextEdit(stretch, offer.text),
            sort_text=f"{offer.sort:02d}{offer.label}",
            filter_text=offer.label,
        )
        for offer in found
    ]
    return types.CompletionList(is_incomplete=False, items=items)


def definition(project: Project, document: Document, position: types.Position) -> list[types.Location]:
    """Where a name is given."""
    view, _, offset = _seen(project, document, position)
    part = view.main
    one = part.reading.at(offset) if part is not None else None
    if part is None or one is None:
        return []
    return [_location(project, t.part, t.start, t.end) for t in targets(view, part, one)]


def references(
    project: Project, document: Document, position: types.Position, with_given: bool
) -> list[types.Location]:
    """Everywhere that a name is used; with `with_given`, also where it is given."""
    view, _, offset = _seen(project, document, position)
    part = view.main
    one = part.reading.at(offset) if part is not None else None
    meant = symbol(view, part, one) if part is not None and one is not None else None
    if part is None or one is None or meant is None:
        return []
    names = (one.name,) if meant.role != roles.USED else ("use",)
    found = uses(project, meant, names, part)
    return [
        _location(project, other, place.start, place.end)
        for _, other, place in found
        if with_given or not _gives(other, place, meant)
    ]


def _gives(part: Part, one: roles.Occurrence, meant: Symbol) -> bool:
    return one.gives or (identity_of(part.path) == meant.identity and one.start == meant.start)


def outlined(project: Project, document: Document) -> list[types.DocumentSymbol]:
    """The outline of a file."""
    text = normal(document.text)
    return outline(project.reading(text), Lines(text, document.lines.encoding))


def prepared(project: Project, document: Document, position: types.Position) -> types.PrepareRenamePlaceholder:
    """The name that would be changed. Raises Refused."""
    view, lines, offset = _seen(project, document, position)
    one, _ = renameable(view, offset)
    return types.PrepareRenamePlaceholder(lines.range(one.start, one.end), one.name)


def rename(
    project: Project, document: Document, position: types.Position, name: str, versioned: bool
) -> types.WorkspaceEdit:
    """Another name. Raises Refused. versioned: whether the editor takes edits that say which version they are for."""
    view, _, offset = _seen(project, document, position)
    return _edit(project, renamed(project, view, offset, name), versioned)


def formatted(document: Document) -> list[types.TextEdit] | None:
    """The edits that lay the text out; None where it has faults of syntax. Raises InputFault for a fault of fmt."""
    text = normal(document.text)
    after = format_text(text, document.path.name).text
    if after is None:
        return None
    if after == text:
        return []
    if "\r" in text or not text.endswith("\n"):  # lines are not those of the editor, or the last one has no end
        return [types.TextEdit(document.lines.range(0, len(document.text)), after)]
    old, new = text.splitlines(keepends=True), after.splitlines(keepends=True)
    if len(old) != text.count("\n"):  # signs that only Python takes for the end of a line
        return [types.TextEdit(document.lines.range(0, len(document.text)), after)]
    ending = "\r\n" if "\r\n" in document.text else "\n"
    edits = []
    for begin, end, first, last in _changed(old, new):
        replaced = "".join(new[first:last]).replace("\n", ending)
        stretch = types.Range(types.Position(begin, 0), types.Position(end, 0))
        edits.append(types.TextEdit(stretch, replaced))
    return edits


def _changed(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """The lines that differ: from and to in the old, from and to in the new."""
    if len(old) + len(new) > _MANY_LINES:
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        return [(same, len(old), same, len(new))]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [(i, j, k, m) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]


def actions(
    project: Project, document: Document, stretch: types.Range, shown: list[types.Diagnostic], versioned: bool
) -> list[types.CodeAction]:
    """Changes that mend a fault. shown: the diagnostics that the editor has there."""
    view, lines, start = _seen(project, document, stretch.start)
    found = mends(project, view, start, lines.offset(stretch.end))
    rows = []
    for mend in found:
        only = sum(other.fault is mend.fault for other in found) == 1
        rows.append(_action(project, view, mend, [d for d in shown if d.code == mend.fault.code], only, versioned))
    return rows


def _action(
    project: Project, view: View, mend: Mend, mended: list[types.Diagnostic], only: bool, versioned: bool
) -> types.CodeAction:
    part = view.main
    assert part is not None
    return types.CodeAction(
        title=mend.title,
        kind=types.CodeActionKind.QuickFix,
        diagnostics=mended or None,
        is_preferred=only or None,
        edit=_edit(project, [Edit(part, mend.start, mend.end, mend.text)], versioned),
    )


# --- places -------------------------------------------------------------------------------------------------


def _seen(project: Project, document: Document, position: types.Position) -> tuple[View, Lines, int]:
    """The set, the lines of the text as it is loaded, and the offset of a position in it."""
    lines = Lines(normal(document.text), document.lines.encoding)
    return project.view(document.path), lines, lines.offset(position)


def _uri(project: Project, part: Part) -> str:
    """The URI by which the editor knows a file."""
    document = project.documents.by_identity(identity_of(part.path))
    return document.uri if document is not None else part.path.absolute().as_uri()


def _location(project: Project, part: Part, start: int, end: int) -> types.Location:
    return types.Location(_uri(project, part), location_of(part, start, end).range)


def _edit(project: Project, edits: list[Edit], versioned: bool) -> types.WorkspaceEdit:
    by_file: dict[str, list[types.TextEdit]] = {}
    version: dict[str, int | None] = {}
    for edit in edits:
        uri = _uri(project, edit.part)
        document = project.documents.by_identity(identity_of(edit.part.path))
        version[uri] = document.version if document is not None else None
        by_file.setdefault(uri, []).append(types.TextEdit(edit.part.lines.range(edit.start, edit.end), edit.text))
    if not versioned:
        return types.WorkspaceEdit(changes=by_file)
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri, version[uri]), list(rows))
            for uri, rows in by_file.items()
        ]
    )

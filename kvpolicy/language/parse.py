"""From text to syntax tree: every fault of one text in one run, and whatever stands besides the faults.

Text comes from `load` or a caller; the tree goes to `check` and `policy.compile`. The grammar is in
`grammar/kvp.lark`, the way past a fault in `recover`, the sentences in `wording`.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from lark.exceptions import UnexpectedInput

from kvpolicy import words
from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.build import Builder
from kvpolicy.language.build_rules import LayerBlock, flat
from kvpolicy.language.collector import stopped
from kvpolicy.language.grammar import parser
from kvpolicy.language.recover import Recovery
from kvpolicy.language.version import misplaced, other_version

LARGEST_TEXT = 4 * 1024 * 1024  # bytes
MOST_RULES = 20_000  # of one set of files: beyond, comparing rules with each other would take minutes
_MANY = 1000  # open parentheses
_MOST_BLOCKS = 2 * MOST_RULES  # `{` of one text, tests and limits included: told before minutes of parsing
_BLOCKS = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\bin\s*\{|\{')  # a set, `in {…}`, is no block
_PARENTHESES = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|[()]')
T = TypeVar("T")
_LARGE = 20_000  # characters from which the collector is stopped
_LOCK = Lock()  # one transformer serves every call


@dataclass(frozen=True, slots=True)
class ParseResult:
    """`file` is None only where the text could not be read at all; with faults it holds what stands besides them.

    `skipped`: the stretches of text that were passed over after a fault.
    """

    file: syntax.File | None
    diagnostics: tuple[Diagnostic, ...]
    skipped: tuple[str, ...] = ()


def parse(text: str, name: str) -> ParseResult:
    """Parse one text. `name` is the file as the author gave it; it stands in every place. Never raises for a fault
    of the text."""
    refused = unusable(text, name) or other_version(text, name)
    if refused is not None:
        return ParseResult(None, (refused,))
    with _LOCK:
        lark, builder = parser()
        builder.begin(name)
        recovery = Recovery(text, name, builder.faults)
        with stopped(where=len(text) > _LARGE), suppress(UnexpectedInput):  # recorded by `recovery`, which gave up
            lark.parse(text, on_error=recovery.on_error)
        file = _file(text, name, builder)
        faults = sorted((*builder.faults, *recovery.faults), key=lambda fault: fault.place)
    if not faults and not (file.rules or file.limits or file.tests or file.uses or file.lets or file.workflows):
        message = "this file says nothing: it has no rule, limit, test or use"
        faults = [codes.UNUSABLE.at(Place(name, 1, 1), message, fix="write a rule, such as `system { priority: 90 }`")]
    return ParseResult(file, tuple(faults), tuple(recovery.skipped))


def unusable(text: str, name: str) -> Diagnostic | None:
    """What makes a text no policy at all: its size, or characters that no text has."""
    place = Place(name, 1, 1)
    if len(text) > LARGEST_TEXT or len(text) > LARGEST_TEXT // 4 and len(text.encode()) > LARGEST_TEXT:
        return codes.UNUSABLE.at(place, "this file is larger than 4 MiB, which no policy is", fix="split it with `use`")
    nul = text.find("\0")
    if nul >= 0:
        before = text[:nul]
        line, column = before.count("\n") + 1, nul - (before.rfind("\n") + 1) + 1
        message = "this is a binary file: it holds a NUL character, which no policy text does"
        return codes.UNUSABLE.at(Place(name, line, column), message)
    if text.count("{") > _MOST_BLOCKS:
        begins = [piece.start() for piece in _BLOCKS.finditer(text) if piece.group() == "{"]
        if len(begins) > _MOST_BLOCKS:
            return too_many(_place(text, name, begins[MOST_RULES]))
    return _too_deep(text, name) if text.count("(") > _MANY else None


def too_many(place: Place) -> Diagnostic:
    """A set of more rules than can be compared with each other."""
    message = f"{MOST_RULES:,} rules, limits and tests stand before this place, and a policy has no more"
    return codes.UNUSABLE.at(place, message, fix="write one rule for many agents or tools, such as `[agent in {a, b}]`")


def _place(text: str, name: str, at: int) -> Place:
    return Place(name, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))


def _too_deep(text: str, name: str) -> Diagnostic | None:
    """A text of thousands of open parentheses would be read to its end before its depth is told."""
    depth = 0
    for piece in _PARENTHESES.finditer(text):
        depth += {"(": 1, ")": -1}.get(piece.group(), 0)
        if depth > _MANY:
            message = f"more than {_MANY} parentheses stand open here"
            fix = "name a part of it with `let` and use the name"
            return codes.SYNTAX.at(_place(text, name, piece.start()), message, fix=fix)
    return None


def _file(text: str, name: str, builder: Builder) -> syntax.File:
    rules: list[syntax.Rule] = []
    layer_order: dict[str, None] = {}
    headers: list[syntax.Header] = []
    languages: list[syntax.Language] = []
    kinds: dict[type, list[object]] = {}
    for item in flat(builder.items):
        if isinstance(item, LayerBlock):
            layer_order[item.name] = None
            rules.extend(item.rules)
        elif isinstance(item, syntax.Rule):
            rules.append(item)
        elif isinstance(item, syntax.Header):
            headers.append(item)
        elif isinstance(item, syntax.Language):
            languages.append(item)
        else:
            kinds.setdefault(type(item), []).append(item)
    for extra in headers[1:]:
        message = f"this file is already called '{headers[0].name}' (line {headers[0].place.line})"
        builder.faults.append(codes.DEFINED_TWICE.at(extra.place, message, fix="keep one `policy` line"))
    builder.faults += misplaced(languages, text)
    return syntax.File(
        name=name,
        text=text,
        digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        header=headers[0] if headers else None,
        uses=_all(kinds, syntax.Use),
        layers=_all(kinds, syntax.Layers),
        layer_order=tuple(layer_order),
        lets=_all(kinds, syntax.Let),
        workflows=_all(kinds, syntax.Workflow),
        rules=tuple(rules),
        limits=_all(kinds, syntax.Limit),
        tests=_all(kinds, syntax.Test),
        language=languages[0].version if languages and languages[0].version in words.LANGUAGES else words.LANGUAGES[0],
    )


def _all(kinds: dict[type, list[object]], kind: type[T]) -> tuple[T, ...]:
    return tuple(item for item in kinds.get(kind, ()) if isinstance(item, kind))

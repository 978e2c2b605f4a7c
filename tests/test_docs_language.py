"""The word tables of `docs/language.md` are those of `kvpolicy.words`; `pytest --update` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kvpolicy import words
from kvpolicy.language import codes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "language.md"
SECTION = re.compile(r"<!-- words: (\w+) -->\n(.*?)<!-- /words -->", re.DOTALL)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def quoted(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def attributes() -> str:
    state = [(f"`{name}`", kind, "events change it") for name, kind in words.STATE_ATTRIBUTES.items()]
    static = [(f"`{name}`", kind, "known when the request arrives") for name, kind in words.STATIC_ATTRIBUTES.items()]
    return table(("attribute", "type", ""), [*static, *state])


TAKES = {"within?": "[within DURATION]", "within": "within DURATION", "like": "VALUE", "...": "…"}


def functions() -> str:
    rows = []
    for name, (takes, gives, maybe) in words.FUNCTIONS.items():
        written = ", ".join(TAKES.get(one, one.upper()) for one in takes)
        given = "like its values" if gives == "like" else gives + "?" * maybe
        rows.append((f"`{name}({written})`", given, words.FUNCTION_MEANINGS[name]))
    series = [f"- `{name}`: {meaning}\n" for name, meaning in words.SERIES.items()]
    return table(("function", "gives", "what"), rows) + "\nA SERIES is one of\n\n" + "".join(series)


def units() -> str:
    rows = [
        ("durations", quoted(unit for unit in words.DURATION_UNITS if unit != "m"), "`m` is read as minutes"),
        ("tokens", quoted(words.TOKEN_UNITS), "`k` is 1,000, `Ki` is 1,024"),
        ("bytes", quoted(words.BYTE_UNITS), ""),
        ("shares", quoted([words.PERCENT_UNIT]), ""),
    ]
    return table(("of", "units", ""), rows)


def phases() -> str:
    rows = [(f"`{one}`", quoted(e for e, after in words.PHASE_AFTER.items() if after == one)) for one in words.PHASES]
    others = quoted(event for event in words.EVENTS if event not in words.PHASE_AFTER)
    return table(("phase", "events that lead to it"), [*rows, ("none", others)])


def tiers() -> str:
    rows = [(f"`{tier}`", quoted(a for a, of in words.TIER_ALIASES.items() if of == tier)) for tier in words.TIERS]
    return table(("tier", "also read as"), rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "kinds": lambda: table(("kind", "which tokens"), ((f"`{k}`", what) for k, what in words.SPAN_KINDS.items())),
    "attributes": attributes,
    "statuses": lambda: quoted(words.STATUSES) + "\n",
    "properties": lambda: table(("property", "meaning"), ((f"`{k}`", what) for k, what in words.PROPERTIES.items())),
    "tiers": tiers,
    "events": lambda: table(("event", "when"), ((f"`{k}`", what) for k, what in words.EVENTS.items())),
    "phases": phases,
    "functions": functions,
    "units": units,
    "reserved": lambda: quoted(sorted(words.RESERVED)) + "\n",
}


def test_the_tables_are_those_of_the_words(update: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    written = SECTION.sub(lambda found: f"<!-- words: {found[1]} -->\n{SECTIONS[found[1]]()}<!-- /words -->", text)
    if update:
        PAGE.write_text(written, encoding="utf-8")
    assert text == written or update


def test_every_table_has_its_place_on_the_page() -> None:
    assert [found[1] for found in SECTION.finditer(PAGE.read_text(encoding="utf-8"))] == list(SECTIONS)


def test_every_value_that_is_a_word_is_on_the_page() -> None:
    said = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    values = {*words.LIFETIMES, *words.PLACES, *words.SHARES, *words.RETENTIONS} - {"hold"}
    assert values <= said
    assert set(words.FUNCTION_MEANINGS) == set(words.FUNCTIONS)


def test_every_word_of_the_language_is_on_the_page() -> None:
    """Each is shown as code, whether in a table or in an example."""
    page = PAGE.read_text(encoding="utf-8")
    shown = " ".join((*re.findall(r"`([^`\n]+)`", page), *re.findall(r"```kvp\n(.*?)```", page, re.DOTALL)))
    known = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", shown))
    workflows = (PAGE.parent / "workflows.md").read_text(encoding="utf-8")
    known |= set(re.findall(r"[a-z]+", workflows)) & set(words.WORKFLOW_WORDS)  # a graph has a page of its own
    tables = (
        words.SPAN_KINDS,
        words.ATTRIBUTES,
        words.STATUSES,
        words.PROPERTIES,
        words.RETENTIONS,
        words.LIFETIMES,
        words.PLACES,
        words.SHARES,
        words.TIERS,
        words.TIER_ALIASES,
        words.DURATION_UNITS,
        words.TOKEN_UNITS,
        words.BYTE_UNITS,
        words.EVENTS,
        words.PHASES,
        words.FUNCTIONS,
        words.STATEMENT_WORDS,
        words.CLAUSE_WORDS,
        words.VALUE_WORDS,
        words.TEST_WORDS,
        words.WORKFLOW_WORDS,
        words.RESERVED,
        ("language", words.ANY_KIND, "never", "nothing"),
        (part for name in words.SERIES for part in name.split(".")),
    )
    assert not {word for table in tables for word in table} - known


@pytest.mark.parametrize("code", sorted(path.stem for path in (PAGE.parent / "codes").glob("KVP*.md")))
def test_every_page_of_a_code_is_reached_by_a_code_that_exists(code: str) -> None:
    assert code in codes.CODES


def test_the_list_of_codes_is_that_of_the_program(update: bool) -> None:
    page = PAGE.parent / "codes" / "README.md"
    text = page.read_text(encoding="utf-8")
    rows = [(f"[{c.code}]({c.code}.md)", f"`{c.name}`", c.severity, c.line) for c in codes.CODES.values()]
    listed = table(("code", "name", "", "what"), rows)
    written = re.sub(
        r"<!-- codes -->\n.*<!-- /codes -->", f"<!-- codes -->\n{listed}<!-- /codes -->", text, flags=re.DOTALL
    )
    if update:
        page.write_text(written, encoding="utf-8")
    assert text == written or update

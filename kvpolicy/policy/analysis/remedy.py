"""What to write where two rules of one layer disagree: both outcomes, ready to be pasted."""

from __future__ import annotations

from kvpolicy.language.phrase import phrase
from kvpolicy.policy.analysis.view import View
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.testing import span_text


def remedies(view: View, first: Rule, second: Rule, names: list[str]) -> str:
    """One sentence a rule: how to let it win. names: the properties on which the two disagree."""
    how = "; ".join(_to_win(view, winner, loser, names) for winner, loser in ((first, second), (second, first)))
    if first.guard is not None and second.guard is not None:
        return how + "; or make one guard the exact contrary of the other"
    return how + "; or move one to a later layer, which wins"


def _to_win(view: View, winner: Rule, loser: Rule, names: list[str]) -> str:
    label = loser.label or _free_label(view, loser)
    asked = " ".join(f"{name}: {view.written_value(name, winner)}" for name in names)
    line = f"for `{asked}` write `{_head(view, winner, over=label)}` in line {winner.place.line}"
    if loser.label is not None:
        return line
    return f"{line}, and `{_head(view, loser, label=label)}` in line {loser.place.line}"


def _head(view: View, rule: Rule, *, over: str = "", label: str = "") -> str:
    """A rule up to its braces, with `over` or a label put in."""
    source = view.written[id(rule)]
    name = label or rule.label
    parts = [f"{_word(name)}:" if name else "", ", ".join(span_text(match) for match in source.selector)]
    if source.over or over:
        parts.append(
            "over " + ", ".join([*(".".join(map(_word, path)) for path in source.over), *([_word(over)] * bool(over))])
        )
    if source.guard is not None:
        parts.append(f"when {phrase(source.guard)}")
    return " ".join(part for part in (*parts, "{ … }") if part)


def _free_label(view: View, rule: Rule) -> str:
    """A label that no rule has yet, after the kind of span the rule is about."""
    base = f"{rule.matches[0].kind}_rule"
    taken = {other.label for other in view.policy.rules}
    return next(
        name for number in range(1, len(taken) + 2) if (name := base + (str(number) if number > 1 else "")) not in taken
    )


def _word(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f'"{name}"'

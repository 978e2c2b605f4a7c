"""`kvp explain FILE`: which rule decides each property of a span, and why; or why a block has its rank.

One span with `--span`, written with what has happened to it as in a `test` block; all spans of a request with
`--request`, in a run state; a block with `--replay` and `--block`, after a timeline. The last two are in `why`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kvpolicy import words
from kvpolicy.cli import why
from kvpolicy.faults import InputFault, PolicyFault

if TYPE_CHECKING:
    from kvpolicy.language import syntax

HELP = (
    "Say which rule decides each property of a span, which rules it beats, and which have no say; or, after a "
    "timeline, why a block has its rank."
)

_AT = "an event, such as 'tool_call[tool=grep]'; may be repeated: --at and --then are taken in the order given"
_THEN = "time that passes before the next event, or before the look, such as 40s; may be repeated"


_CLOSES = {"[": "]", "(": ")", "{": "}"}


class _InOrder(argparse.Action):
    """Keeps --at and --then in the order they were given."""

    def __call__(self, parser: object, args: argparse.Namespace, value: Any, option: str | None = None) -> None:
        args.happened = [*(args.happened or ()), (str(option), str(value))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE… --span MATCH [--at EVENT]… [--then DURATION]… [--assume CALL=VALUE]…`, `FILE… --request R [--state S]`, or
    `FILE… --replay TIMELINE --block NAME…`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .kvp file, or the name of a packaged policy")
    parser.add_argument("--span", metavar="MATCH", help="such as 'turn[agent=coder, tokens=12k]'")
    parser.add_argument("--at", dest="happened", action=_InOrder, metavar="EVENT", help=_AT)
    parser.add_argument("--then", dest="happened", action=_InOrder, metavar="DURATION", help=_THEN)
    parser.add_argument(
        "--assume", action="append", default=[], metavar="CALL=VALUE", help="such as 'p95(tool.duration)=800ms'"
    )
    why.add_options(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Raises PolicyFault for a policy with errors, InputFault for an option's text."""
    from kvpolicy.policy.checked import open_policy
    from kvpolicy.policy.explain import explain
    from kvpolicy.policy.passed import unheeded
    from kvpolicy.policy.snapshot import Snapshot

    if why.asked(args):
        return why.run(args)
    given = _step("--span", args.span, "given")
    happened = [_step(option, text, option[2:]) for option, text in args.happened or ()]
    assumed = [_step("--assume", text, "assume") for text in args.assume]
    policy = open_policy(args.files)
    for option, text, word in (
        ("--span", args.span, "given"),
        *((option, text, option[2:]) for option, text in args.happened or ()),
        *(("--assume", text, "assume") for text in args.assume),
    ):
        _check_types(option, text, word)
    state = Snapshot(policy.lets, lenient=True)
    try:
        subject = state.span(given.span)
        for step in assumed:
            state.assume(step.call, step.value, step.span)
        for step in happened:
            if hasattr(step, "event"):
                state.happen(step.event)
            else:
                state.wait(step.duration)
    except PolicyFault as fault:  # of the options' text, not of the policy
        at = fault.diagnostics[0]
        raise InputFault(f"{at.place.file}: {at.message}") from None
    found = explain(policy, subject, state)
    missing = list(state.missing)
    document = found.as_json()
    sentences = [*found.sentences, *unheeded(state.events, subject)]
    if missing:
        sentences.append("Not assumed, so without data (or 0 where there always is some): " + ", ".join(missing) + ".")
        document["not_assumed"] = missing
    document["sentences"] = sentences
    if args.format == "json":
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        print("\n".join(_lines(document)))
    return 0


def _lines(document: dict[str, object]) -> Iterable[str]:
    sentences = document["sentences"]
    assert isinstance(sentences, list)
    return (str(sentence) for sentence in sentences)


def _step(option: str, text: str, word: str) -> Any:
    """The one step of a `test` block that an option's text says."""
    from kvpolicy.language.parse import parse

    opened = _unclosed(text)
    if opened is not None:
        raise InputFault(f"{option} '{text}': this '{opened}' is never closed; write `{_CLOSES[opened]}` where it ends")
    result = parse(f'test "{option[2:]}" {{\n{word} {text}\n}}', option)
    if result.diagnostics or result.file is None:
        reason = result.diagnostics[0].message if result.diagnostics else "it cannot be read"
        raise InputFault(f"{option} '{text}': {reason}")
    file = result.file
    steps = file.tests[0].steps if len(file.tests) == 1 else ()
    if len(steps) != 1 or file.rules or file.limits or file.uses or file.lets or file.workflows:
        raise InputFault(f"{option} '{text}': write one {'span' if word == 'given' else 'value'} here")
    _know(option, text, steps[0])
    return steps[0]


def _unclosed(text: str) -> str | None:
    """The sign of the last bracket that is open at the end of an option's text; None where all are closed."""
    waiting: list[str] = []
    for piece in re.findall(r'"(?:[^"\\\n]|\\.)*"|[][(){}]', text):
        if piece in _CLOSES:
            waiting.append(piece)
        elif waiting and piece == _CLOSES[waiting[-1]]:
            waiting.pop()
    return waiting[-1] if waiting else None


def _check_types(option: str, text: str, word: str) -> None:
    """What the checks of a `test` block say of the step: units, series, statuses. Names of a `let` are the policy's,
    which says whether it has them; that a span has one value of each attribute is said where it is made."""
    from kvpolicy.faults import ERROR
    from kvpolicy.language.check import examine
    from kvpolicy.language.load import load_text

    for fault in examine(load_text(f'test "{option[2:]}" {{\n{word} {text}\n}}', option)):
        elsewhere = fault.message.endswith("is not defined") or fault.message.startswith("a test states that")
        if fault.severity == ERROR and not elsewhere:
            raise InputFault(f"{option} '{text}': {fault.message}" + (f"; {fault.fix}" if fault.fix else ""))


def _know(option: str, text: str, step: Any) -> None:
    """Refuse words that do not exist, with the nearest that does."""
    span = getattr(step, "span", None)
    if span is not None:
        _among(option, text, [span.kind], [*words.SPAN_KINDS, *([words.ANY_KIND] if option == "--assume" else [])])
        _among(option, text, _attributes(span.conditions), words.ATTRIBUTES)
    event = getattr(step, "event", None)
    if event is not None:
        _among(option, text, [event.name], words.EVENTS)
        _among(option, text, _attributes(event.conditions), words.EVENT_ATTRIBUTES)
    call = getattr(step, "call", None)
    if call is not None:
        _among(option, text, [call.function], words.FUNCTIONS)


def _attributes(conditions: Sequence[syntax.Condition]) -> list[str]:
    return [c.attribute for c in conditions]


def _among(option: str, text: str, names: Iterable[str], known: Iterable[str]) -> None:
    from kvpolicy.language.spelling import nearest

    known = list(known)
    for name in names:
        if name not in known:
            alias = words.EVENT_ALIASES.get(name)
            near = alias if alias in known else nearest(name, known)
            hint = f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"
            raise InputFault(f"{option} '{text}': '{name}' does not exist; {hint}")

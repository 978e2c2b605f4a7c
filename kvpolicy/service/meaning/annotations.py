"""What a client says of its request, in one form, whichever way it came.

Made by `headers` and `body_field`, merged by `merged` (the header wins, a difference is answered), read by `sessions`
and `spans`. All of it is a wish: `caps` and the tenant bound it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice

from kvpolicy import words
from kvpolicy.workflow.events import Event, is_field

MESSAGE, TOKEN, TOOLS = "message", "token", "tools"  # what a mark's numbers count; TOOLS: the tool definitions
CONFLICT = "CONFLICTING_ANNOTATION"
UNKNOWN_TAG = "unknown_tag"
MALFORMED = "malformed"
TOO_MANY = "TOO_MANY_EVENTS"
MOST_EVENTS = 16  # of one request; more are told by POST /v1/events, for which no request waits
MOST_WARNED = 64  # of one request; more than a client is told
LONGEST_NAME = 256  # characters of an identifier
MODES = (None, "off", "shadow", "enforce")  # that may be asked for
END = -1  # a mark's end: behind the last message

EVENT_NAMES: Mapping[str, str] = {
    **{name.replace("_", "-"): name for name in words.EVENTS},
    **{alias.replace("_", "-"): name for alias, name in words.EVENT_ALIASES.items()},
    "tool-start": "tool_call",
    "tool-end": "tool_result",
}


@dataclass(frozen=True, slots=True)
class Context:
    """Identity and place in the workflow; None: not said."""

    session: str | None = None
    run: str | None = None
    workflow: str | None = None
    node: str | None = None
    agent: str | None = None
    turn: int | None = None
    branch: str | None = None
    parent: str | None = None
    depth: int | None = None
    last_step: bool | None = None
    final: bool | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A run of the prompt of one kind: [start, end) in messages or tokens; `part` of one message alone."""

    kind: str
    unit: str = MESSAGE
    start: int = 0
    end: int = END
    part: int | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Warned:
    """A code to answer with. key, about: what it is about in the client's own words, such as tag and colour; None: all
    that was said."""

    code: str
    key: str | None = None
    about: str | None = None


@dataclass(frozen=True, slots=True)
class Annotations:
    """policy, mode: wished for; a mode can only be lowered. warnings: what to answer with."""

    context: Context = Context()
    marks: tuple[Mark, ...] = ()
    events: tuple[Event, ...] = ()
    policy: str | None = None
    mode: str | None = None
    warnings: tuple[Warned, ...] = ()

    @property
    def warned(self) -> tuple[str, ...]:
        """The codes alone, each once."""
        return tuple(dict.fromkeys(each.code for each in self.warnings))


NOTHING = Annotations()


def merged(header: Annotations, body: Annotations) -> Annotations:
    """Both together. The header wins; where both say something and it differs, CONFLICTING_ANNOTATION is answered."""
    if body is NOTHING:
        return header
    if header is NOTHING:
        return body
    differs = False
    said: dict[str, object] = {}
    for each in fields(Context):
        ours, theirs = getattr(header.context, each.name), getattr(body.context, each.name)
        differs = differs or (ours is not None and theirs is not None and ours != theirs)
        said[each.name] = theirs if ours is None else ours
    for ours, theirs in ((header.marks, body.marks), (header.events, body.events)):
        differs = differs or bool(ours and theirs and ours != theirs)
    for ours, theirs in ((header.policy, body.policy), (header.mode, body.mode)):
        differs = differs or (ours is not None and theirs is not None and ours != theirs)
    warnings = once((*header.warnings, *body.warnings, *((Warned(CONFLICT),) if differs else ())))
    return replace(
        header,
        context=Context(**said),  # type: ignore[arg-type]
        marks=header.marks or body.marks,
        events=header.events or body.events,
        policy=header.policy if header.policy is not None else body.policy,
        mode=header.mode if header.mode is not None else body.mode,
        warnings=warnings,
    )


def once(warnings: Iterable[Warned]) -> tuple[Warned, ...]:
    """Each of them once, in their order."""
    return tuple(islice(dict.fromkeys(warnings), MOST_WARNED))


def tag(about: object, code: str = UNKNOWN_TAG) -> Warned:
    """A word of the client's that is not known, or cannot be read."""
    said = about if isinstance(about, str | int | float) else type(about).__name__
    return Warned(code, "tag", str(said)[:LONGEST_NAME])


def name_of(value: object) -> str | None:
    """An identifier as text of a bounded length; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    return text if 0 < len(text) <= LONGEST_NAME and text.isprintable() else None


def event_of(name: str, attributes: Mapping[str, object], warned: list[Warned]) -> Event | None:
    """An event in the language's words, its time still open (0.0); None for one that is none. What of it is not known
    is added to `warned`."""
    known = EVENT_NAMES.get(name.replace("_", "-"))
    if known is None:
        warned.append(tag(name))
        return None
    kept: dict[str, object] = {}
    for key, value in attributes.items():
        if key == "tenant" or key not in words.EVENT_ATTRIBUTES:
            warned.append(tag(key))  # the tenant comes from authentication alone
            continue
        if not is_field(value):
            warned.append(tag(key, MALFORMED))
            continue
        kept[key] = float(value) if key in ("eta", "score") and isinstance(value, int | float) else value
    return Event(0.0, known, kept)

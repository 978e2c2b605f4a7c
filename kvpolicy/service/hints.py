"""What clients are told of their hints: what became of them and why, in headers of the answer; and what is counted.

`deciding` says what it knows when it plans; the last word is said when an engine has answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kvpolicy.service.channels import NONE, OPEN
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.seen import Seen

MOST_WARNED = 16  # in one answer; all are counted
LONGEST_ABOUT = 64  # characters of a client's own word that it is told
ACCEPTED, CLIPPED, DEFERRED, IGNORED, UNKNOWN = "accepted", "clipped", "deferred", "ignored", "unknown"
# Why a hint is not accepted, beside `channels.DOWN` and `channels.NONE`.
BY_CAPS, PLACES, LATE, UNREAD, REFUSED, OPENED = "caps", "places", "late", "unread", "refused", "failed_open"
UNPLANNABLE = "engine"
GOOD = 400  # an answer from here on ran no request
TOLD = "x-kvp-decision"


class Hints:
    """heard: whether the engine at an address hears its control channel, as `Channels.state` says. counts: see
    `metrics`; answers: what requests were told, by status."""

    name = "decisions"

    def __init__(self) -> None:
        self.heard: Callable[[str], str] = lambda url: OPEN
        self.counts: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()

    def _answer(self, exchange: Exchange, seen: Seen | None, status: str, reason: str | None = None) -> None:
        """What the client is told of its hints, as far as it is known by now; `chosen` has the last word."""
        said = status if reason is None else f"{status};reason={reason}"
        if seen is None:
            exchange.answer_headers[TOLD] = f'id="{exchange.id}", status={said}'
            return
        seen.status, seen.reason = status, reason
        version, made = seen.chosen.version, seen.plan
        exchange.answer_headers[TOLD] = (
            f'id="{exchange.id}", policy="{_ascii(version.shown)}", v={version.number}, mode={seen.chosen.mode}, '
            f"directives={0 if made is None else len(made.directives)}, status={said}"
        )

    def chosen(self, exchange: Exchange) -> None:
        """An engine has answered, and its answer's head is about to go back: what has become of the hints is known.

        # INVARIANT: `accepted` and `clipped` are said of a plan that an engine which hears its channel was given.
        """
        seen: Seen | None = exchange.notes.get(self.name)
        if TOLD not in exchange.answer_headers:  # what was written of it went with a fault
            self._answer(exchange, None, IGNORED, OPENED)
            self.answers[IGNORED] += 1
        elif seen is None:
            self.answers[IGNORED] += 1
        else:
            self._count(exchange, seen)

    def _count(self, exchange: Exchange, seen: Seen) -> None:
        """What a request's hints came to, said and counted."""
        status, reason = seen.status or IGNORED, seen.reason
        heard = OPEN if exchange.upstream is None else self.heard(exchange.upstream)
        if status != IGNORED and exchange.status >= GOOD:
            status, reason = IGNORED, REFUSED
        elif status in (ACCEPTED, CLIPPED) and heard != OPEN:
            # Written into the request, but nobody has said that this engine takes such plans; one that follows cannot.
            status, reason = (UNKNOWN if seen.carried else IGNORED if heard == NONE else DEFERRED), heard
        elif status == DEFERRED and heard != OPEN:
            status, reason = (IGNORED if heard == NONE else DEFERRED), heard
        self._answer(exchange, seen, status, reason)
        self.answers[status] += 1

    def _warn(self, exchange: Exchange, code: str, key: str | None = None, about: str | None = None) -> None:
        """Tell the client a code; key, about: what it is about, in the client's own words."""
        self.counts[f"warned_{code}"] += 1
        told = exchange.answer_headers.get("x-kvp-warn")
        listed = [] if told is None else told.split(", ")
        said = code if about is None else f'{code};{key}="{_ascii(about)[:LONGEST_ABOUT].replace(",", "_")}"'
        if said not in listed and len(listed) < MOST_WARNED:
            exchange.answer_headers["x-kvp-warn"] = ", ".join([*listed, said])


def _ascii(text: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in text)

"""What an engine answers on its channel finds who asked, however soon it comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kvpolicy.faults import InputFault
from kvpolicy.service.channels import Channels

URL = "http://engine"


class AtOnce:
    """An engine whose answer is there before `send` has returned."""

    def __init__(self, answered: Callable[[Mapping[str, Any]], None], statuses: tuple[str, ...]) -> None:
        self.answered, self.statuses, self.number = answered, statuses, 0

    def send(self, message: dict[str, Any]) -> int:
        if "do" not in message:
            raise InputFault("do")
        self.number += 1
        for status in self.statuses:
            thread = threading.Thread(target=self.answered, args=({"id": self.number, "status": status},))
            thread.start()
            thread.join()
        return self.number

    def close(self) -> None:
        pass


def channels(*statuses: str) -> Channels:
    made = Channels([], "none")
    made._channels[URL] = AtOnce(lambda row: made._answered(URL, row), statuses)
    return made


@pytest.mark.parametrize("statuses", [("accepted",), ("deferred", "accepted")])
def test_an_answer_that_comes_before_its_number_is_noted(statuses: tuple[str, ...]) -> None:
    made = channels(*statuses)
    for _ in range(3):
        answer = asyncio.run(made.ask(URL, {"do": "show"}, 10.0))
        assert answer is not None and answer["status"] == "accepted"
    assert made.counts["unanswered"] == 0 and made.counts["answer_accepted"] == 3 and made._asking == 0


def test_nobody_is_woken_for_an_answer_that_nobody_waits_for() -> None:
    made = channels("accepted")
    asyncio.run(made.ask(URL, {"do": "show"}, 10.0))
    made.send(URL, {"do": "show"})  # the loop of before has ended
    assert made.counts["answer_accepted"] == 2


def test_a_message_that_is_none_and_an_answer_that_does_not_come() -> None:
    made = channels("deferred")
    assert asyncio.run(made.ask(URL, {}, 10.0)) is None
    assert asyncio.run(made.ask(URL, {"do": "show"}, 0.05)) is None
    assert asyncio.run(made.ask("http://another", {"do": "show"}, 10.0)) is None
    assert (made.counts["faults"], made.counts["unanswered"], made._asking) == (1, 1, 0)

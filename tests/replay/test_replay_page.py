"""The page about timelines: its example answers what it says, and it lists every step with its keys."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvpolicy.replay.replay import STEPS
from tests.replay.timeline_steps import play

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def within(shown: object, answer: object) -> bool:
    """Whether an answer has everything that the page shows of it."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(key in answer and within(shown[key], answer[key]) for key in shown)
    if isinstance(shown, list):
        return isinstance(answer, list) and len(shown) == len(answer) and all(map(within, shown, answer))
    return shown == answer


def test_the_example_answers_what_the_page_says(tmp_path: Path) -> None:
    (policy,) = blocks("kvp")
    steps, shown = ([json.loads(line) for line in block.splitlines()] for block in blocks("jsonl"))
    answers = play(tmp_path, steps, policy, "--blocks", "100")
    for row, answer in zip(shown, answers, strict=True):
        assert within(row, answer), (row, answer)


def test_every_step_is_listed() -> None:
    listed = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE))))
    assert listed - {"do"} == {*STEPS}

"""What is said in histories: prompts whose words no other has, answers, calls and their results; and policies.

One word is one token of the simulated engine, so a message of 60 takes some blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Message = Mapping[str, Any]
PROTECTED = 250  # how strongly a block of rank 50 is kept while it is held


def words(name: str, number: int) -> str:
    """So many words that no other name has."""
    return " ".join(f"{name}{place}" for place in range(number))


def system(name: str = "system") -> Message:
    return {"role": "system", "content": words(name, 60)}


def user(name: str, number: int = 60) -> Message:
    return {"role": "user", "content": words(name, number)}


def said(name: str, number: int) -> Message:
    return {"content": words(name, number)}


def calls(*ids: str) -> Message:
    """An answer that asks for tools."""
    function = {"name": "grep", "arguments": "{}"}
    return {"content": "let me look", "tool_calls": [{"id": i, "type": "function", "function": function} for i in ids]}


def results(*ids: str) -> list[Message]:
    return [{"role": "tool", "tool_call_id": each, "content": words(f"found{each}", 30)} for each in ids]


PAUSE = """policy p
turn, system, tool_result { priority: 50 }
on tool_call until tool_result { turn, output, tool_result { retention: hold 50min } }
"""
UNTIL = """policy p
turn, system, tool_result { priority: 50 }
held: turn, tool_result { retention: hold until EVENT at most 2h }
"""
PLAIN = "policy p\nturn { priority: 60 }\n"
BASE = (Path(__file__).parents[2] / "policies" / "base.kvp").read_text()

"""lark's parser stacks: which block the parser is in, and how the half-built part is finished or dropped.

`recover` works on them after a fault. They are no documented interface of lark (`lark>=1.2.2,<2`); the tests of
recovery run on the oldest and the newest.
"""

from __future__ import annotations

from typing import Any

from lark import Token

TOP, LAYER, ON, WORKFLOW, TEST, BODY, SET = "file", "layer", "on", "workflow", "test", "body", "set"


def is_shift(action: tuple[Any, Any]) -> bool:
    """Whether an entry of the parse table takes the token in, rather than reduce first."""
    return getattr(action[0], "name", None) == "Shift"


def is_block(row: dict[str, Any]) -> bool:
    """Whether a state stands directly inside braces or at the top of the file."""
    for terminal in ("RBRACE", "POLICY"):
        action = row.get(terminal)
        if action is not None and is_shift(action):
            return True
    return False


def finish(state: Any) -> None:
    """Build what is complete: a statement whose last word stands, a block whose `}` does. The parser itself waits for
    the next word before it does so, and that word is the faulty one."""
    states, callbacks = state.parse_conf.states, state.parse_conf.callbacks
    while True:
        row = states[state.state_stack[-1]]
        top = state.value_stack[-1] if state.value_stack else None
        closed = isinstance(top, Token) and top.type == "RBRACE"
        action = row.get("$END") or (row.get("RBRACE") if closed else None)
        if action is None or is_shift(action) or is_block(row):
            return
        rule = action[1]
        size = len(rule.expansion)
        values = state.value_stack[-size:] if size else []
        if size:
            del state.state_stack[-size:], state.value_stack[-size:]
        value = callbacks[rule](values)
        state.state_stack.append(states[state.state_stack[-1]][rule.origin.name][1])
        state.value_stack.append(value)


def pop_to_block(state: Any) -> list[Any]:
    """Drop the half-built part: back to the inside of the innermost open braces, or to the top of the file."""
    states = state.parse_conf.states
    dropped = []
    while len(state.state_stack) > 1 and not is_block(states[state.state_stack[-1]]):
        state.state_stack.pop()
        dropped.append(state.value_stack.pop())
    return dropped


def block_of(state: Any) -> str:
    """Which kind of braces the parser is in, told by what may stand there."""
    states = state.parse_conf.states
    for number in reversed(state.state_stack):
        row = states[number]
        if not is_block(row):
            continue
        if "POLICY" in row:
            return TOP
        if "GIVEN" in row:
            return TEST
        if "LOOP" in row:
            return WORKFLOW
        if "ON" in row:
            return LAYER
        if "LSQB" in row:
            return ON
        return BODY if "NAME" in row else SET
    return TOP


def opening_of(values: list[Any]) -> Token | None:
    """The innermost open brace, bracket or parenthesis."""
    closed = 0
    for value in reversed(values):
        if not isinstance(value, Token):
            continue
        if value.type in {"RBRACE", "RSQB", "RPAR"}:
            closed += 1
        elif value.type in {"LBRACE", "LSQB", "LPAR"}:
            if not closed:
                return value
            closed -= 1
    return None

"""Past a fault and on: panic-mode resynchronisation at the next statement, rule or property.

`parse` gives `Recovery.on_error` to lark. A fault is recorded once; the half-built part goes; reading goes on where
the text plainly starts something new. Dropping single tokens instead would answer one slip with dozens of messages.

It reaches into lark's parser and lexer state, which is no documented interface: `lark>=1.2.2,<2`, and the tests of
recovery run on the oldest and the newest.
"""

from __future__ import annotations

import re
from typing import Any

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from kvpolicy import words
from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import wording
from kvpolicy.language.met import Fault, is_nested
from kvpolicy.language.stacks import (
    BODY,
    LAYER,
    ON,
    SET,
    TEST,
    TOP,
    WORKFLOW,
    block_of,
    finish,
    is_block,
    is_shift,
    opening_of,
    pop_to_block,
)

_PIECE = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][A-Za-z0-9_]*|\n|[ \t\r]+|.', re.S)
_RULE_START = re.compile(
    r'(?:[A-Za-z_]\w*|"(?:[^"\\\n]|\\.)*")[ \t]*(?::[ \t]*\n?[ \t]*(?:[A-Za-z_\[])|[\[{,]|when\b|over\b)|\['
)
_PROPERTY_START = re.compile(r"[A-Za-z_]\w*[ \t]*:")
_STATEMENTS = frozenset(words.STATEMENT_WORDS) - {"until"}
_STARTERS: dict[str, frozenset[str]] = {
    TOP: _STATEMENTS,
    LAYER: frozenset({"on"}),
    WORKFLOW: frozenset((*words.WORKFLOW_WORDS, "workflow")),
    TEST: frozenset({"given", "assume", "at", "then", "expect"}),
}
MOST_FAULTS = 50  # a text with more is told so far


class Recovery:
    """The faults of one text, and the way past each."""

    def __init__(self, text: str, name: str, built: list[Diagnostic]) -> None:
        self.text = text
        self.name = name
        self.faults: list[Diagnostic] = []
        self._built = built  # the builder's own faults
        self.skipped: list[str] = []
        self._resumed_at = -1
        self._dropped = 0  # where the half-built part begins that goes

    def on_error(self, error: UnexpectedInput) -> bool:
        """Record the fault and move on; False where nothing more can be read."""
        interactive: Any = error.interactive_parser
        state = interactive.parser_state
        if isinstance(error, UnexpectedToken):
            token = error.token
        else:
            assert isinstance(error, UnexpectedCharacters)
            at = error.pos_in_stream or 0
            token = Token("CHARACTER", self.text[at : at + 1], at, error.line, error.column)
        start = token.start_pos if token.start_pos is not None and token.type != "$END" else len(self.text)
        finish(state)
        fault = Fault(
            text=self.text,
            file=self.name,
            token=token,
            start=start,
            accepted=frozenset(interactive.accepts()),
            block=block_of(state),
            opening=opening_of(state.value_stack),
        )
        told = wording.describe(fault)
        if told is not None:
            self.faults.append(told)
        if fault.misread_at is not None:
            self._forget(fault.place(fault.misread_at))
        if token.type == "$END" or len(self.faults) >= MOST_FAULTS:
            return False
        self._dropped = start
        resume = self._resynchronise(state, start, fault)
        begin = self.text.rfind("\n", 0, self._dropped) + 1
        self.skipped.append(self.text[begin : max(begin, len(self.text) if resume is None else resume)])
        if resume is None:
            return False
        self._resumed_at = resume
        lexer_state = interactive.lexer_thread.state
        counter = lexer_state.line_ctr
        counter.char_pos = resume
        counter.line = self.text.count("\n", 0, resume) + 1
        counter.line_start_pos = self.text.rfind("\n", 0, resume) + 1
        counter.column = resume - counter.line_start_pos + 1
        lexer_state.last_token = None
        # What is read again is told again.
        self._forget(Place(self.name, counter.line, counter.column, counter.line, counter.column))
        return True

    def _forget(self, here: Place) -> None:
        """Take back what the builder has said of the text from a place on."""
        at = (here.line, here.column)
        self._built[:] = [fault for fault in self._built if (fault.place.line, fault.place.column) < at]

    # --- where to go on ---------------------------------------------------------------------------------

    def _resynchronise(self, state: Any, start: int, fault: Fault) -> int | None:
        """Drop the half-built part from the parser's stacks, and answer the position at which to read on."""
        self._drop(pop_to_block(state))
        at_start = fault.unclosed_at is not None or fault.swallowed_at is not None
        if fault.unclosed_at is not None:  # a `}` is missing before it: what it belongs to goes
            start = fault.unclosed_at
            self._close_body(state)
        elif fault.swallowed_at is not None:
            start = fault.swallowed_at
        block = block_of(state)
        depth = 0
        position = start if fault.passed_at is None else fault.passed_at
        line_start = self._at_line_start(start)
        while position < len(self.text):
            piece = _PIECE.match(self.text, position)
            assert piece is not None
            text = piece.group()
            moved = position > start or position > self._resumed_at
            if text == "{":
                depth += 1
            elif text == "}":
                if depth == 0 and block != TOP:
                    return position
                depth = max(0, depth - 1)
                if depth == 0 and block in {TOP, LAYER, ON, TEST}:
                    return piece.end()
            elif depth == 0 and moved and (text[0].isalpha() or text[0] in '_"['):
                statement = line_start and self._is_statement(block, text, position)
                if (statement and self._pop_until(state, text.upper())) or self._starts(
                    block, text, position, line_start, position > start or at_start
                ):
                    return position
            if text == "\n":
                line_start = True
            elif not text.isspace():
                line_start = False
            position = piece.end()
        return None

    def _is_statement(self, block: str, word: str, position: int) -> bool:
        """Whether a statement of the file begins here, whatever is open; a workflow that stands in one is none."""
        within = block == WORKFLOW and is_nested(self.text, position)
        return word in _STATEMENTS and block != SET and not within

    def _starts(self, block: str, word: str, position: int, line_start: bool, moved: bool) -> bool:
        """Whether something that `block` may hold begins here. moved: this is not the word that the fault is at."""
        if word in _STARTERS.get(block, ()):
            if block == TEST:
                return not (word == "at" and re.match(r"at\s+(most|least)\b", self.text[position : position + 40]))
            return line_start or (moved and block != WORKFLOW)
        if block == BODY and moved:
            return word not in words.SPAN_KINDS and _PROPERTY_START.match(self.text, position) is not None
        if block in {TOP, LAYER, ON} and moved:
            return line_start and _RULE_START.match(self.text, position) is not None
        return False

    def _at_line_start(self, position: int) -> bool:
        return not self.text[self.text.rfind("\n", 0, position) + 1 : position].strip()

    def _drop(self, values: list[Any]) -> None:
        """Remember where what goes begins: names may have been defined in it."""
        for value in values:
            if isinstance(value, Token) and value.start_pos is not None:
                self._dropped = min(self._dropped, value.start_pos)
            elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Place):  # a label or a name
                line = value[1].line
                at = sum(len(text) + 1 for text in self.text.split("\n")[: line - 1])
                self._dropped = min(self._dropped, at)

    def _close_body(self, state: Any) -> None:
        """Leave the block that misses its `}`, as if it had never begun."""
        while len(state.state_stack) > 1:
            state.state_stack.pop()
            dropped = state.value_stack.pop()
            self._drop([dropped])
            if isinstance(dropped, Token) and dropped.type == "LBRACE":
                break
        self._drop(pop_to_block(state))

    def _pop_until(self, state: Any, terminal: str) -> bool:
        """Leave blocks until a statement that begins with `terminal` may stand; False where it never may."""
        states, stack = state.parse_conf.states, state.state_stack
        for height in range(len(stack), 0, -1):
            action = states[stack[height - 1]].get(terminal)
            if action is not None and is_shift(action) and is_block(states[stack[height - 1]]):
                del stack[height:]
                del state.value_stack[height - 1 :]
                return True
        return False

"""A policy's text with one of its rules deleted, so that tests can show what the rule was for."""

from __future__ import annotations

import re

_EMPTY = re.compile(r"^[ \t]*(?:on|layer)\b[^{}\n]*\{\s*\}\n", re.MULTILINE)


def without(text: str, rule: str) -> str:
    """`text` without the rule labelled `rule`, and without what is empty then. Raises where there is no such rule."""
    start = re.search(rf"\b{rule}:\s[^{{]*\{{", text)
    assert start is not None, f"no rule is labelled {rule}"
    depth, end = 1, start.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    rest = text[: start.start()] + text[end:]
    rest = re.sub(rf"( over (?:\w+, )*){rule}, |(?:, | over ){rule}\b", r"\1", rest)  # nothing is over it any more
    while _EMPTY.search(rest):
        rest = _EMPTY.sub("", rest)
    return rest


def expectations(text: str) -> str:
    """The tests of a policy without `use` and `by`: they say what is to come out, not which rule says so."""
    return re.sub(r" by [\w.]+", "", re.sub(r"^use .*\n", "", text, flags=re.MULTILINE))

"""Whatever JSON a body is, it is a call or refused in words."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.simulated.anthropic import message_call
from kvpolicy.simulated.openai import chat_call, text_call
from kvpolicy.simulated.responses import response_call

KEYS = (
    "messages", "tools", "prompt", "input", "system", "instructions", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "min_tokens", "ignore_eos", "sim_reply", "cache_salt", "model", "kv_transfer_params",
    "vllm_xargs", "kvpolicy", "content",
    "tool_calls", "reasoning_content", "function", "arguments", "name", "type", "text", "tool_use", "input_schema",
)  # fmt: skip
READERS = (chat_call, text_call, response_call, message_call)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
        optional=dict.fromkeys(("content", "tool_calls", "reasoning_content", "tool_call_id"), ANYTHING),
    ),
    min_size=1,
    max_size=2,
)
BODIES = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(KEYS, ANYTHING), "messages": MESSAGES | ANYTHING, "input": MESSAGES | ANYTHING}
)


@settings(max_examples=200, deadline=None)
@given(BODIES)
@pytest.mark.parametrize("read", READERS)
def test_any_body_is_a_call_or_refused_in_words(read: Any, body: dict[str, Any]) -> None:
    with suppress(InputFault):
        assert len(read(body, 1, 4096).answer.tokens) <= 4096 or body.get("sim_reply") is not None

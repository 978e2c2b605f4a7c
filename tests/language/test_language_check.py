"""Words and types: one fault, one message, with what to write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.language.spelling import MOST_COMPARED, nearest
from tests.language.language_texts import faults_of, names_of


def guard(text: str) -> str:
    return f"turn when {text} {{ priority: 3 }}\n"


@pytest.mark.parametrize(
    "text",
    [
        "idle() < 5s",
        "p95(tool.duration) else p95(tools.duration) else 5s <= 20s",
        "pressure(gpu) > 80%",
        "pressure(hbm) > 0.8",
        "1 - pressure(gpu) > 0.2",
        "reuse_probability(within 30s) else 50% >= 0.5",
        "return_probability(within 2 * 5s) else 0 > 0.5",
        "steps_to_next_use() else 3 > 2",
        "steps_to_next_use() else 3 < never",
        "hits(turn) else 0 = 0 and turns_ago() > 3 or fan_out() >= 2",
        "bytes() else 3MiB > 2 GiB",
        "idle() / 5s > 2 * 1.5",
        "min(idle(), age(), 5s) + 3s < max(5s, 6s)",
        "clamp(turns_ago(), 0, 10) * 3 > 5",
        "count(tool.duration) > 0",
        "log2(idle() / 1s) > 1.5",
        "2 * log2(hit_density() else 1) < 0",
        "eta(tool_result) else 5s > 3s",
        "not yes",
        "best_hold() else 0s > queue_delay() else 0s",
        "-idle() < 0s",
    ],
)
def test_conditions_that_fit(text: str) -> None:
    assert names_of(guard(text)) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("idle() < 5", "unit-missing"),
        ("idle() + 5 < 5s", "unit-missing"),
        ("pressure(gpu) > 80", "unit-missing"),
        ("bytes() else 3MiB > 5", "unit-missing"),
        ("idle() < 5MiB", "unit-mismatch"),
        ("idle() * age() > 5s", "unit-mismatch"),
        ("5 / idle() > 5", "unit-mismatch"),
        ("idle()", "unit-mismatch"),
        ("5", "unit-mismatch"),
        ("idle() and yes", "unit-mismatch"),
        ("not idle()", "unit-mismatch"),
        ("yes < no", "unit-mismatch"),
        ("yes + no = yes", "unit-mismatch"),
        ('"x" > 5', "unit-mismatch"),
        ("p95(tool.duration) < 5s", "missing-else"),
        ("5s < p95(tool.duration) else p50(tool.duration)", "missing-else"),
        ("min(p95(tool.duration), 5s) < 5s", "missing-else"),
        ("not (steps_to_next_use() > 5)", "missing-else"),
        ("p95(tool.duration) else 5 < 5s", "unit-missing"),
        ("p95(tol.duration) else 5s < 5s", "unknown-name"),
        ("p96(tool.duration) else 5s < 5s", "unknown-name"),
        ("p95() else 5s < 5s", "unit-mismatch"),
        ("idle(5s) < 5s", "unit-mismatch"),
        ("idle(within 5s) < 5s", "unit-mismatch"),
        ("return_probability() else 1 < 1", "unit-mismatch"),
        ("reuse_probability(within 5) else 1 < 1", "unit-missing"),
        ("pressure(gpuu) < 1", "unknown-name"),
        ("hits(trn) else 3 < 1", "unknown-name"),
        ("eta(tool_reslt) else 3s < 1s", "unknown-name"),
        ("min(idle()) < 5s", "unit-mismatch"),
        ("clamp(1, 2) < 5", "unit-mismatch"),
        ("log2() < 5", "unit-mismatch"),
        ("log2(1, 2) < 5", "unit-mismatch"),
        ("log2(idle()) < 5", "unit-mismatch"),
        ("log2(yes) < 5", "unit-mismatch"),
        ("log2(hit_density()) < 5", "missing-else"),
        ("log2(4) < 5s", "unit-mismatch"),
        ("patience < 5s", "unknown-name"),
        ("idle < 5s", "unknown-name"),
    ],
)
def test_conditions_that_do_not(text: str, name: str) -> None:
    (fault,) = faults_of(guard(text))
    assert fault.name == name, fault


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("priority: 100 - 10 * steps_to_next_use() else 3", None),
        ("priority: 100 * reuse_probability() else 0.5", None),
        ("priority: 40%", "unit-mismatch"),
        ("priority: 5s", "unit-mismatch"),
        ("priority: steps_to_next_use()", "missing-else"),
        ("priority: 50.0", "out-of-range"),
        ("retention: hold 5s", None),
        ("retention: hold 5", "unit-missing"),
        ("retention: hold -5s", "out-of-range"),
        ("retention: hold until tool_result", None),
        ("retention: hold until tool_reslt", "unknown-name"),
        ("retention: hold until tool_result at most 5", "unit-missing"),
        ("retention: 5s", "unit-mismatch"),
        ("retention: dropp", "unknown-name"),
        ("ttl: 300", "unit-missing"),
        ("ttl: 10min fixed", None),
        ("ttl: 10MiB", "unit-mismatch"),
        ("ttl: pin", "unknown-name"),
        ("priority: 5 fixed", "unit-mismatch"),
        ("priority: hold 5s", "unit-mismatch"),
        ("hold: 5s", "unknown-name"),
        ("for: session", None),
        ("for: workflow", None),
        ("for: sesion", "unknown-name"),
        ("for: 5s", "unit-mismatch"),
        ("tier: gpu, cpu after 30s, disk after 10min", None),
        ("tier: cpu", None),
        ("tier: hbm, dram after 5s, nvme after 6s", None),
        ("tier: cpu, gpu after 5s", "out-of-range"),
        ("tier: gpu, gpu after 5s", "out-of-range"),
        ("tier: gpu, cpu", "unit-mismatch"),
        ("tier: cpu after 5s", "unit-mismatch"),
        ("tier: gpu, cpu after 5", "unit-missing"),
        ("tier: gpu, cpu after 5min, disk after 5s", "out-of-range"),
        ("tier: gpu, tape after 5s", "unknown-name"),
        ("place: gpu, cpu after 5s", "unit-mismatch"),
        ("prefetch: yes", None),
        ("prefetch: 5s", None),
        ("prefetch: next_use() else 5s < 5s", None),
        ("prefetch: 5", "unit-mismatch"),
        ("prefetch: -5s", "out-of-range"),
        ("admit: hits(turn) else 0 > 1", None),
        ("admit: 5s", "unit-mismatch"),
        ("replicas: 2", None),
        ("replicas: all", None),
        ("replicas: 0", "out-of-range"),
        ("replicas: 1.5", "out-of-range"),
        ("place: same_worker", None),
        ("place: here", "unknown-name"),
        ("share: global", None),
        ("share: world", "unknown-name"),
        ("priority: default", None),
        ("ttl: default", None),
        ("tier: default", None),
        ("replicas: default", None),
        ("priorty: 5", "unknown-name"),
        ("priority: 5  priority: 6", "name-defined-twice"),
    ],
)
def test_values_of_properties(text: str, name: str | None) -> None:
    advice = {"lifetime-of-nothing", "this-is-lru"}
    found = [n for n in names_of(f"output {{ {text} }}\n") if n not in advice]
    assert found == ([name] if name else [])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('agent = coder, tool in {a, "b c"}, depth >= 3, tokens > 8k, tokens < 9000', None),
        ("score > 0.5, status = done, last_step = yes, rank > -1", None),
        ("depth > few", None),
        ("agnt = coder", "unknown-name"),
        ("agent > coder", "unit-mismatch"),
        ("agent = 5", "unit-mismatch"),
        ("depth = 1.5", "unit-mismatch"),
        ("depth = 5s", "unit-mismatch"),
        ("depth > many", "unit-mismatch"),
        ("tokens > 5s", "unit-mismatch"),
        ("tokens > -5", "out-of-range"),
        ("status = don", "unknown-name"),
        ("last_step = maybe", "unit-mismatch"),
        ("eta > 5s", "unknown-name"),
    ],
)
def test_brackets(text: str, name: str | None) -> None:
    assert names_of(f"let few = 3\nturn[{text}] {{ priority: 50 }}\n") == ([name] if name else [])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("priority: at most 40  priority: at least 3", None),
        ("hold: at most 40% of gpu  gpu: at most 3GiB  cpu: at most 30%  hold: at most 12k", None),
        ("ttl: at most 5min  replicas: at most 3", None),
        ("priority: at most 101", "out-of-range"),
        ("hold: at most 140% of gpu", "out-of-range"),
        ("hold: at most 40", "unit-missing"),
        ("hold: at most 40% of gpuu", "unknown-name"),
        ("ttl: at most 5", "unit-missing"),
        ("share: at most 5", "unknown-name"),
        ("prioritee: at most 5", "unknown-name"),
    ],
)
def test_limits(text: str, name: str | None) -> None:
    assert names_of(f"limit any {{ {text} }}\n") == ([name] if name else [])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("given turn[agent = x, tokens = 12k]  expect turn { priority: 50 by mine }", None),
        ("assume p95(tool.duration) = 800ms for turn  assume idle() = 5s", None),
        ("assume steps_to_next_use() = never  assume next_use() = nothing  assume hits(turn) = 3", None),
        ("assume reuse_probability(within 30s) = 40%  assume pressure(gpu) = 0.4", None),
        ("at tool_call[tool = grep]  then 3min", None),
        ("expect turn { priority: default  retention: hold 5s  tier: gpu }", None),
        ("given any", "unit-mismatch"),
        ("given trn", "unknown-name"),
        ("given turn[depth > 3]", "unit-mismatch"),
        ("at tool_cal", "unknown-name"),
        ("then 3", "unit-missing"),
        ("assume p96(tool.duration) = 5s", "unknown-name"),
        ("assume idle() = 5", "unit-missing"),
        ("assume idle() = 5MiB", "unit-mismatch"),
        ("assume max(1, 2) = 5", "unit-mismatch"),
        ("expect turn { prioritty: 5 }", "unknown-name"),
        ("expect turn { priority: 5 by mine_ }", "unknown-name"),
    ],
)
def test_tests(text: str, name: str | None) -> None:
    assert names_of(f'mine: turn {{ priority: 50 }}\ntest "t" {{ {text} }}\n') == ([name] if name else [])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("let a = b\nlet b = 5s\nturn { ttl: a priority: 50 }", None),
        ("let a = b + 1s\nlet b = a\nturn { ttl: a priority: 50 }", "unknown-name"),
        ("let a = a\nturn { priority: 50 }", "unknown-name"),
        ("let a = 5s\nlet a = 6s\nturn { priority: 50 }", "name-defined-twice"),
        ("let a = p95(tool.duration)\nturn { ttl: a else 5s priority: 50 }", None),
        ("let a = p95(tool.duration)\nturn { ttl: a priority: 50 }", "missing-else"),
        ("x: turn over y { priority: 50 }", "unknown-name"),
        ("x: turn over x { priority: 50 }", "unknown-name"),
        ("layers a, b\nlayer a { turn { priority: 50 } }", "unknown-name"),
        ("layers a, a\nlayer a { turn { priority: 50 } }", "name-defined-twice"),
        ("on tool_cal { turn { priority: 50 } }", "unknown-name"),
        ("on tool_call until tool_result at most 5 { turn { priority: 50 } }", "unit-missing"),
        ("on tool_call[tol = x] { turn { priority: 50 } }", "unknown-name"),
        ("workflow w { agent a, b  a -> b -> c }\nturn { priority: 50 }", "unknown-name"),
        ("workflow w { agent a, b, a  a -> b }\nturn { priority: 50 }", "name-defined-twice"),
        ("workflow w { agent a, b  a -> b  loop b -> a at most 0 }\nturn { priority: 50 }", "out-of-range"),
        ("limit any per user { priority: at most 40 }", "unknown-name"),
    ],
)
def test_names(text: str, name: str | None) -> None:
    assert names_of(text + "\n") == ([name] if name else [])


def test_names_that_stand_for_too_much_are_refused() -> None:
    doubling = "let a0 = 1s\n" + "".join(f"let a{i + 1} = a{i} + a{i}\n" for i in range(60))
    assert "syntax" in names_of(doubling + "turn { ttl: a60  priority: 50 }\n")
    long = "let a0 = 1s\n" + "".join(f"let a{i + 1} = a{i} + 1s\n" for i in range(3000))
    assert "syntax" in names_of(long + "turn { ttl: a3000  priority: 50 }\n")


@given(st.sampled_from([w for w in (*words.PROPERTIES, *words.EVENTS, *words.FUNCTIONS) if len(w) > 5]), st.data())
def test_one_slip_is_found(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(word) - 2))
    slip = data.draw(
        st.sampled_from(
            [
                word[:at] + word[at + 1 :],
                word[:at] + "q" + word[at:],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            ]
        )
    )
    table = next(t for t in (words.PROPERTIES, words.EVENTS, words.FUNCTIONS) if word in t)
    assert nearest(slip, table) is not None


def test_nearest() -> None:
    assert nearest("priorty", words.PROPERTIES) == "priority"
    assert nearest("tool_reslut", words.EVENTS) == "tool_result"
    assert nearest("docs", words.SPAN_KINDS) is None
    assert nearest("xyzzy", words.SPAN_KINDS) is None
    assert nearest("", words.SPAN_KINDS) is None


@pytest.mark.parametrize("what", ["let", "rule"])
def test_where_many_names_are_known_only_the_first_unknown_ones_are_compared(what: str) -> None:
    known, unknown = 400, 120
    written = {
        "let": ("let name{0} = 5s", "turn[tenant = t{0}] when idle() < nam{0} {{ priority: 50 }}"),
        "rule": (
            "name{0}: turn[tenant = t{0}] {{ priority: 50 }}",
            "tools[tenant = t{0}] over nam{0} {{ priority: 60 }}",
        ),
    }[what]
    lines = [written[0].format(n) for n in range(known)] + [written[1].format(n) for n in range(unknown)]
    near = [fault.fix for fault in faults_of("\n".join(lines)) if fault.code == "KVP101"]
    assert len(near) == unknown
    asked = sum("did you mean" in (fix or "") for fix in near)
    assert near[0] == "did you mean `name0`?" and 20 < asked <= MOST_COMPARED // known + 1 < unknown


@pytest.mark.parametrize("used", ["a" * 300, f'"{"b" * 300}/c.kvp"', f'"{"c" * 300}.kvp"'])
def test_a_used_name_that_no_file_can_have_is_an_unknown_one(used: str) -> None:
    assert names_of(f"use {used}\nany {{ priority: 60 }}") == ["unknown-name"]

"""Slips with a sentence of their own, word for word: what is said, where, and what to write instead."""

from __future__ import annotations

import pytest

from tests.language.language_texts import faults_of

SLIPS = (
    ("turn { priority: 3 } }", 22, "this '}' closes nothing", "remove it"),
    ('policy p "never ends', 10, "this string is not closed on its line", 'write the other "'),
    ("turn { priority: 3", 6, "this '{' is never closed", "write `}` where it ends"),
    ("turn { priority: 3; }", 19, "';' is not part of the language", "no ';' is needed: properties and statements "),
    ("turn[agent == a] { priority: 3 }", 12, "'==' is not part of the language", "write `=` for '=='"),
    ("turn[agent = my-agent] { priority: 3 }", 16, "'-' cannot stand in a name", 'write it as a string: "my-…"'),
    ("turn { tier: gpu cpu after 30s }", 18, "a comma is missing before 'cpu'", "write `, cpu`: the steps of "),
    ("turn { ttl: 5 minuts }", 13, "'minuts' is not a unit; the units are ms, s, min, ", "write 5min"),
    ("layer over { turn { priority: 3 } }", 7, "'over' is a word of the language", 'write another name, or "over"'),
    ("turn { priority: 90, ttl: 1h }", 20, "no comma stands between properties", "remove the `,`"),
    ("turn { tier: gpu, priority: 3 }", 17, "no comma stands between properties", "remove the `,`"),
    ("turn { priority: 90, }", 20, "no comma stands between properties", "remove the `,`"),
    ("turn { retention: pin 30s }", 19, "'pin' takes no time", "write `retention: hold 30s`"),
    ("turn { retention: keep 30s }", 19, "there is no retention 'keep'", "write `retention: hold 30s`"),
    ("turn { retention: hold for 30s }", 19, "no `for` stands before the time", "write `retention: hold 30s`"),
    ("if tool_call { turn { priority: 4 } }", 1, "'if' opens no interval", "write `on tool_call { … }`"),
    ("when tool_call { turn { priority: 4 } }", 1, "'when' opens no interval", "write `on tool_call { … }`"),
    ("pin system", 1, "a rule begins with the spans it is about", "write `system { retention: pin }`"),
    ("turn after turn_end { retention: drop }", 6, "the event stands in front", "write `on turn_end { turn { … } }`"),
    ("turn if depth { priority: 4 }", 6, "a condition of a span begins with `when`", "write `turn when … { … }`"),
    ("turn when tokens > 4k { priority: 4 }", 11, "'tokens' is not defined", "'tokens' is said of a span, in brackets"),
    ("turn[tool = a or tool = b] { priority: 4 }", 15, "no `or` stands in brackets", "write `tool in {a, b}`"),
    ("turn[tool = a or agent = b] { priority: 4 }", 15, "no `or` stands in brackets", "write two matches"),
    ("turn[tool = a and agent = b] { priority: 4 }", 15, "in brackets `,` says 'and'", "write `,` for `and`"),
    ("policy my-agents", 10, "'-' cannot stand in a name", 'write `my_agents`, or the string "my-agents"'),
    ("on tool_start { turn { priority: 4 } }", 4, "there is no event 'tool_start'", "write `tool_call`"),
    ("turn { drop: true }", 8, "there is no property 'drop'", "write `retention: drop`"),
    ("turn { keep }", 8, "there is no property 'keep'", "write `retention: pin`"),
    ("turn { drop }", 8, "'drop' is a value of `retention`", "write `retention: drop`"),
    ("turn when idle() > 3s over y { ttl: 1h }", 23, "`over` stands before the condition", "write `over y when …`"),
    (
        "on human_pause { turn { ttl: 1h } }",
        4,
        "'human_pause' is a phase, not an event; what leads",
        "write `turn_end`",
    ),
    ("on tool_pause { turn { ttl: 1h } }", 4, "'tool_pause' is a phase, not an event; what leads", "write `tool_call`"),
    ("system: { priority: 9 }", 7, "no colon stands between the spans", "write `system { … }`"),
    (
        "on tool_call, turn_end { turn { priority: 4 } }",
        13,
        "`on` takes one event",
        "write a block for each: `on tool_",
    ),
    (
        "on tool_call or turn_end { turn { priority: 4 } }",
        14,
        "`on` takes one event",
        "write a block for each: `on too",
    ),
    (
        "on tool_call till tool_result { turn { priority: 4 } }",
        14,
        "the end of an interval begins",
        "write `on tool_call ",
    ),
    (
        "when pressure(gpu) > 90% { turn { priority: 4 } }",
        1,
        "no rule begins with `when`",
        "write the condition behind",
    ),
    ("turn and system { priority: 4 }", 6, "spans that a rule is about are listed", "write `turn, system { … }`"),
    ("turn | system { priority: 4 }", 6, "spans that a rule is about are listed", "write `turn, system { … }`"),
    ("turn[agent = a || agent = b] { priority: 4 }", 16, "in brackets `,` says 'and'", "write `,` for 'and'; for 'or'"),
    ("turn[not agent = a] { priority: 4 }", 6, "no `not` stands in brackets", "write `agent != …`"),
    ("turn[agent = a*] { priority: 4 }", 15, "there are no patterns", "write the names: `agent in {a, b}`"),
    ("turn[agent = my agent] { priority: 4 }", 14, "a name with a blank in it", 'write `"my agent"`'),
    ("coder turn { priority: 4 }", 1, "a colon is missing behind the rule's label", "write `coder: turn …`"),
    ("rule coder: turn { priority: 4 }", 1, "a rule begins with its label", "remove `rule`"),
    ("import base", 1, "another policy is brought in by `use`", "write `use base`"),
    ('include "a.kvp"', 1, "another policy is brought in by `use`", 'write `use "a.kvp"`'),
    ("* { priority: 4 }", 1, "no sign stands for all spans", "write `any { … }`"),
    ("all { priority: 4 }", 1, "there is no span kind 'all'", "did you mean `any`?"),
    ("user { priority: 4 }", 1, "there is no span kind 'user'", "did you mean `turn`?"),
    ("turn { tier: vram }", 14, "there is no tier 'vram'", "did you mean `gpu`?"),
    ("limit any { hold: at most 30% of vram }", 13, "there is no tier 'vram'", "did you mean `gpu`?"),
    ("turn { priority: if idle() > 3s then 5 else 10 }", 18, "a value has no `if`", "write two rules, one of them"),
    ("turn { admit: if hits(system) > 2 }", 15, "a value has no `if`", "write two rules, one of them"),
    ("turn { priority: 50 when idle() > 3s }", 21, "a condition stands in front of the braces", "write `turn when … "),
    ("turn { prefetch: true }", 18, "'true' is not defined", "write `yes`"),
    (
        "turn { tier: gpu after 5s, cpu }",
        14,
        "the first tier of a ladder",
        "write the time behind the tier that follows: ",
    ),
    ('policy my-policy "x"', 10, "'-' cannot stand in a name", 'write `my_policy`, or the string "my-policy"'),
    ("turn over b { priority: 4 }", 11, "there is no rule 'b'", "no rule has a label here; give the one"),
    ("use coding_agent with short_pause = 5", 37, "'short_pause' is a duration there", "write 5s, 5min or 5h"),
    (
        "turn when agent = coder { priority: 5 }",
        11,
        "'agent' is not defined",
        "'agent' is said of a span, in brackets be",
    ),
    ("turn { retention: hold }", 19, "a hold needs its time", "write `hold 30s`, or `hold until tool_result`"),
    (
        "turn { retention: pin until session_end }",
        23,
        "a pin stands as long",
        "write `hold until session_end at most 1h`",
    ),
    ("turn after 5min { tier: cpu }", 6, "how long a span is idle", "write `turn when idle() > 5min { … }`"),
    ("turn { ttl: forever priority: 50 }", 13, "'forever' is not defined", "leave a `ttl` without end out"),
    ("turn { ttl: 5m30s priority: 50 }", 13, "'5m30s' has two units", "write 330s"),
    ("turn { ttl: 1h 30min priority: 50 }", 13, "a duration has one number and one unit", "write 90min"),
    ("short = 5s", 1, "a value gets its name by `let`", "write `let short = …`"),
    ("const short = 5s", 1, "a value gets its name by `let`", "write `let short = …`"),
    ("turn[agent = a][tool = b] { priority: 5 }", 16, "a span has one pair of brackets", "write `,` between"),
    ("turn[agent = a, b] { priority: 5 }", 14, "several values of an attribute", "write `agent in {a, b}`"),
    ("turn[depth between 1 and 5] { priority: 5 }", 12, "a range is two", "write `depth >= 1, depth <= 5`"),
    ("turn[1 < depth < 5] { priority: 5 }", 6, "a range is two", "write `depth >= 1, depth <= 5`"),
    ("turn when pressure > 90% { priority: 5 }", 11, "'pressure' is not defined", "a function is written with parenth"),
    ("limit { hold: at most 40% of gpu }", 1, "a limit says which spans", "write `limit any { … }`"),
    ("limit any { hold at most 40% of gpu }", 18, "a colon is missing behind 'hold'", "write `hold: at most …`"),
    ("limit any { hold: <= 40% of gpu }", 19, "a bound begins with `at most`", "write `at most …` for `<=`"),
    ("limit any { priority: at most 40 of gpu }", 13, "`of gpu` belongs to a share of memory", "remove `of gpu`"),
    ("on tool_call { on tool_result { turn { priority: 5 } } }", 16, "no interval stands in another", "write the two "),
    (
        "on tool_call until tool_result for 5min { turn { ttl: 1h } }",
        32,
        "how long an interval",
        "write `at most 5min`",
    ),
    ("priority: 50", 1, "a property stands in the braces of a rule", "write `turn { priority: … }`, with the spans"),
    ("workflow w { agents a, b }", 14, "nodes are declared by `agent`, not by `agents`", "write `agent a`"),
)


@pytest.mark.parametrize(("text", "column", "message", "fix"), SLIPS, ids=[text for text, *_ in SLIPS])
def test_a_slip_is_told_in_its_own_words(text: str, column: int, message: str, fix: str) -> None:
    (fault,) = faults_of(text)
    assert (fault.place.line, fault.place.column) == (1, column)
    assert fault.message.startswith(message)
    assert (fault.fix or "").startswith(fix)


def test_a_test_that_expects_without_the_word() -> None:
    text = 'turn { priority: 3 }\ntest "a" {\n given turn\n at tool_call[tool = grep]\n turn { priority: 3 }\n}\n'
    (fault,) = faults_of(text)
    assert (fault.place.line, fault.fix) == (5, "write `expect turn { … }`")
    (fault,) = faults_of(text.replace("\n turn {", "\n 80 {"))
    assert (fault.fix or "").startswith("write a step there: `given`")


def test_time_in_a_test_passes_with_then() -> None:
    text = 'turn { priority: 3 }\ntest "a" {\n given turn\n after 5s\n expect turn { priority: 3 }\n}\n'
    (fault,) = faults_of(text)
    assert (fault.place.line, fault.message, fault.fix) == (4, "time passes with `then`", "write `then 5s`")


def test_properties_that_are_set_in_belong_in_braces() -> None:
    fault = faults_of("turn:\n  priority: 50\n")[0]
    assert (fault.place.line, fault.message, fault.fix) == (
        2,
        "properties stand in braces",
        "write `turn { priority: … }`",
    )


def test_nodes_of_a_workflow_are_declared() -> None:
    faults = faults_of("workflow w { a -> b }")
    assert [(fault.message, fault.fix) for fault in faults] == [
        ("there is no node 'a'", "declare it: `agent a`"),
        ("there is no node 'b'", "declare it: `agent b`"),
    ]


MENDED = (
    "turn[tokens >= 8 k] { priority: 50 }",
    "turn[tokens >= 8 Ki], document[tokens < 1 M] { priority: 50 }",
    "any { priority: 4 }",
    'turn[agent = "my agent"] { priority: 4 }',
    "turn { tier: gpu, cpu after 5s }",
    "turn { priority: 90 ttl: 1h }",
    "turn { retention: hold 30s }",
    "turn[tool in {a, b}] { priority: 4 }",
    "turn[tokens > 4k] { priority: 4 }",
    'policy "my-agents"\nturn { priority: 4 }',
    "on turn_end { turn { retention: drop } }",
    "turn[agent = a], turn[tool = b] { priority: 4 }",
)


@pytest.mark.parametrize("text", MENDED)
def test_what_a_fix_says_can_be_written(text: str) -> None:
    assert not [fault for fault in faults_of(text) if fault.severity == "error"]


@pytest.mark.parametrize(("names", "told"), [(45, 0), (75, 1)])  # each name adds two levels: itself and the sum
def test_a_chain_of_names_has_a_depth_that_can_be_read(names: int, told: int) -> None:
    lets = ["let a0 = 1s", *(f"let a{i} = a{i - 1} + 1s" for i in range(1, names))]
    faults = faults_of("\n".join(lets) + "\nturn { priority: 80  ttl: a0 }")
    assert [fault.message.partition("' ")[2] for fault in faults] == [
        "stands for more than 2000 parts or 100 levels, all names written out"
    ] * told

"""Every command used wrongly: one line that says what is wrong in the caller's words and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvpolicy.cli import main as dispatcher

CALLS = [
    ("check nope", "nope: cannot be read: there is no such file; the packaged policies are "),
    (
        "check contnuum",
        "contnuum: cannot be read: there is no such file; did you mean the packaged policy 'continuum'?",
    ),
    ("check nope.kvp", "nope.kvp: cannot be read: there is no such file"),
    ("test nope.kvp", "nope.kvp: cannot be read: there is no such file"),
    ("fmt base", "base: this is a packaged policy; name a file"),
    ("fmt nope.kvp", "nope.kvp: no such file or directory"),
    ("diff base nope", "nope: cannot be read: there is no such file; the packaged policies are "),
    ("diff base", "diff: the following arguments are required: B; kvp diff --help says more"),
    ("explain base", "explain: give --span, --request or --replay; kvp explain --help says more"),
    ("explain base --span trun", "--span 'trun': 'trun' does not exist; did you mean 'turn'?"),
    (
        "explain base --span turn --at tool_end",
        "--at 'tool_end': 'tool_end' does not exist; did you mean 'tool_r",
    ),
    ("plan base --request nope.json", "nope.json: no such file or directory"),
    ("replay nope.jsonl", "nope.jsonl: no such file or directory"),
    ("graph base", "base has no workflow"),
    ("simulate nope --capacity 4", "nope: neither a file nor a known trace; known are claude-code, "),
    ("simulate generated --capacity x", "--capacity x: a capacity is a count, such as 4096, or several, "),
    ("simulate generated --capacity 4s", "--capacity 4s: a time is no size; a capacity is a count, such as 4096, "),
    ("simulate generated --capacity 0", "--capacity 0: a pool needs at least one block; give a number above 0"),
    ("simulate generated --capacity 4 --policy nope", "nope: no policy of that name; packaged are "),
    ("simulate generated --capacity 4 --price-ratio nan", "--price-ratio nan: a price ratio is above 0, such as 10"),
    ("simulate generated --capacity 4 --jobs 0", "--jobs 0: at least one process is needed"),
    ("trace get", "trace get: it takes a name"),
    ("trace get kvflow-chain", "kvflow-chain: it is made, not fetched: kvp trace make kvflow-chain --out FILE"),
    ("trace get generated", "generated: it is made when it is replayed and has no file: kvp simulate generated"),
    ("trace list generated", "trace list: it takes no name"),
    ("engine --blocks 0", "a pool needs at least one block, not 0"),
    ("engine --block-size 0", "a block has at least one token, not 0"),
    ("engine --decode-s -1", "times must not be negative"),
    ("engine --port 99999", "cannot listen on 127.0.0.1:99999: bind(): port must be 0-65535.; give another"),
    ("engine --host 192.0.2.1 --port 1", "cannot listen on 192.0.2.1:1: cannot assign requested address; give"),
    ("serve", "an engine is needed: --upstream http://127.0.0.1:8000, or [[upstream]] in --config"),
    ("serve --upstream there", "--upstream there: an address that begins with http:// or https:// is needed; did you "),
    ("serve --upstream http://a --channel b --channel c", "--channel: 2 of them for 1 engines; give one for each, "),
    ("serve --upstream http://127.0.0.1:9 --policy nope", "nope: cannot be read: there is no such file; "),
    ("serve --upstream http://127.0.0.1:9 --host 0.0.0.0", "without tenants and keys only loopback is listened on"),
    ("serve --config nope.toml", "nope.toml: no such file or directory"),
    ("lsp --loud", "lsp: unrecognized arguments: --loud; kvp lsp --help says more"),
    ("bench", "bench: the following arguments are required: do; kvp bench --help says more"),
    ("bench nope", "bench: argument do: invalid choice: 'nope' (choose from "),
    ("advise nope --capacity 4", "nope: neither a file nor a known trace; known are claude-code, "),
    ("record nope.jsonl", "nope.jsonl: no such file or directory"),
    ("run abacus", "no way to start engine 'abacus' is installed (installed: "),
    ("run vllm --kvp-loud", "run vllm: unknown option --kvp-loud; ours are --kvp-python, "),
    ("run vllm --kvp-channel", "run vllm: --kvp-channel needs a value"),
    ("doctor abacus http://127.0.0.1:9", "no doctor for engine 'abacus' is installed (installed: "),
    ("doctor vllm localhost", "localhost: an address such as http://127.0.0.1:8000 is needed"),
    ("doctor vllm http://127.0.0.1:9", "http://127.0.0.1:9: no answer: "),
]


@pytest.mark.parametrize(("call", "said"), CALLS, ids=[call for call, _ in CALLS])
def test_a_wrong_call_is_answered_in_one_line(
    call: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dispatcher.main(call.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kvp: {said}"), err
    assert len(err.splitlines()) == 1


def test_every_command_is_used_wrongly_here() -> None:
    assert {call.split()[0] for call, _ in CALLS} == set(dispatcher.offered())


@pytest.mark.parametrize("call", ["test", "explain --span turn", "simulate generated --capacity 4 --policy"])
def test_faults_of_a_policy_come_with_their_source_lines(
    call: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.kvp"
    file.write_text("turn {\n  priority: 200\n}\n")
    assert dispatcher.main([*call.split(), str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{file}:2:13: error KVP105 out-of-range: a priority is from 0 to 100, and this is 200",
        "  2 |   priority: 200",
        "    |             ^^^",
        "  instead: write 100",
        "more about it: docs/codes/KVP105.md",
    ]

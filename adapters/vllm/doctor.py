"""`kvp doctor vllm URL`: what a running vLLM does with directives, seen from outside.

Asks the server over HTTP, its control channel where it has one, and reports findings. A field that is accepted and
ignored counts as not supported: whether a directive works is told by `doctor_effect`, from what stays cached. Nothing
is sent to a server of an unknown version but questions.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from kvpolicy.adapters.vllm import run_places
from kvpolicy.adapters.vllm.doctor_effect import effect
from kvpolicy.adapters.vllm.doctor_http import Server
from kvpolicy.adapters.vllm.versions import SUPPORTED, unknown
from kvpolicy.channel.client import ask
from kvpolicy.examining import BROKEN, GOOD, MISSING, UNKNOWN, Finding, Patient
from kvpolicy.faults import InputFault

RUN = "start it with `kvp run vllm …`"


def examine(patient: Patient) -> list[Finding]:
    """All findings, in the order in which one would mend them. Raises InputFault where no vLLM answers at the URL."""
    server = Server(patient.url)
    version = server.version()
    strange = unknown(version)
    known = f"known are {', '.join(SUPPORTED)}"
    if strange is not None:
        mend = f"the adapter stays off and sends nothing; {known}"
        return [Finding("version", BROKEN, strange, mend, {"version": version})]
    found = [Finding("version", GOOD, f"vLLM {version}", details={"version": version})]
    settings = server.settings()
    found.append(_caching(settings))
    channel = patient.channel or _channel_of(patient.url)
    status = _hooks(channel, patient.token, found)
    found.append(_events(server))
    if settings.get("enable_prefix_caching") == "False":
        return found
    model = patient.model or server.model()
    counted = server.counts_cached(model)
    found.append(
        Finding("cached tokens", GOOD, "the server tells how many tokens of a prompt it had cached")
        if counted
        else Finding(
            "cached tokens",
            MISSING,
            "the server does not tell cached tokens, so no effect can be seen",
            "add --enable-prompt-tokens-details",
        )
    )
    if counted:
        blocks = int(settings["num_gpu_blocks"]) if settings.get("num_gpu_blocks", "").isdecimal() else None
        size = int(settings["block_size"]) if settings.get("block_size", "").isdecimal() else 16
        found.append(effect(server, model, size, blocks, patient.flood, channel if status is not None else None))
    return found


def _caching(settings: dict[str, str]) -> Finding:
    told = settings.get("enable_prefix_caching")
    blocks, size = settings.get("num_gpu_blocks"), settings.get("block_size")
    if told == "True":
        return Finding("prefix caching", GOOD, f"on, {blocks} blocks of {size} tokens", details=dict(settings))
    if told == "False":
        return Finding("prefix caching", MISSING, "off: there is nothing to keep", "remove --no-enable-prefix-caching")
    return Finding("prefix caching", UNKNOWN, "the server's /metrics do not tell")


def _hooks(channel: str | None, token: str | None, found: list[Finding]) -> dict[str, object] | None:
    """Which hooks are active, as the channel tells; None where there is no channel."""
    if channel is None:
        found.append(
            Finding(
                "control channel",
                MISSING,
                "none is known, so ranks cannot change without a request",
                f"{RUN}, or set KVPOLICY_CHANNEL=unix:/path for the server and for this command",
            )
        )
        return None
    try:
        row = ask(channel, {"do": "ping"}, token=token)
    except InputFault as fault:
        found.append(Finding("control channel", BROKEN, str(fault), f"{RUN}, or name its channel with --channel"))
        return None
    counts = row.get("channel")
    found.append(Finding("control channel", GOOD, channel, details={"counts": counts, "waiting": row.get("waiting")}))
    engine = row.get("engine")
    if not isinstance(engine, dict):
        found.append(Finding("scheduler", BROKEN, "the channel is not served by our scheduler", RUN))
        return None
    off = engine.get("off")
    if off:
        found.append(Finding("scheduler", BROKEN, f"off: {off}", "restart the server; its log has the cause"))
        return None
    hooks = engine.get("hooks")
    active = [name for name, on in hooks.items() if on] if isinstance(hooks, dict) else []
    state = "follows ranks" if engine.get("active") else "stands by until the first directive comes"
    by = f" (by {', '.join(active)})" if active else ""
    found.append(Finding("scheduler", GOOD, f"{state}{by}", details=dict(engine)))
    return engine


def _events(server: Server) -> Finding:
    sources = server.event_sources()
    if sources is None:
        return Finding("KV events", UNKNOWN, "the server does not tell whether it publishes them")
    on = {
        rank: row
        for rank, row in sources.items()
        if isinstance(row, dict) and row.get("enable_kv_cache_events") and row.get("publisher") == "zmq"
    }
    if not on:
        return Finding(
            "KV events", MISSING, "off: what it holds is not known", f"{RUN}, or add --kv-events-config '{{…}}'"
        )
    ends = ", ".join(str(row.get("endpoint")) for row in on.values())
    if not all(row.get("replay_endpoint") for row in on.values()):
        return Finding("KV events", MISSING, f"{ends}, without replay: a gap stays", 'add "replay_endpoint" to them')
    bare = [
        str(row.get("endpoint"))
        for row in on.values()
        if str(row.get("endpoint")).startswith("tcp://") and not re.search(r"\*|::", str(row.get("endpoint")))
    ]
    if bare:
        return Finding(
            "KV events",
            BROKEN,
            f"{bare[0]} has no *, so the server connects there instead of listening",
            f"write tcp://*:{bare[0].rpartition(':')[2]}",
        )
    return Finding("KV events", GOOD, ends, details={"sources": on})


def _channel_of(url: str) -> str | None:
    """Where `kvp run` puts the channel of a server at that port of this machine, if something is there."""
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    places = run_places.places_of(parts.port or 80)
    return places.channel if (places.folder / "channel").exists() else None

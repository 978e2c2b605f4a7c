"""The service's configuration: a TOML file, checked by pydantic, with a clear fault for each wrong key.

Read at the start by `kvp serve`, and again when it changes, for tenants and keys (`following`); policies are read by
their own loader.
Without a file one tenant is assumed, no keys are asked, and only loopback is listened on.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.service.closed import CLOSED
from kvpolicy.units import parse_duration

NO_KEY_HASH = (
    "the SHA-256 of a key is needed, 64 hexadecimal digits in lower case, never the key itself; "
    "`kvp serve --hash-key` prints it of a key on its standard input"
)
Mode = Literal["off", "shadow", "enforce"]
Text = Annotated[str, Field(min_length=1, max_length=256)]


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Upstream(_Section):
    """An engine. url: its base address; name: in metrics. channel: address of its control channel, channel_token_file:
    what opens it; events: address of its KV events, replay: of those missed. models: names it serves; empty: any.
    ca_file: whom https is believed (default: the system's list); cert_file, key_file: our own certificate, where the
    engine asks for one."""

    url: Text
    name: str | None = None
    channel: str | None = None
    channel_token_file: str | None = None
    events: str | None = None
    replay: str | None = None
    models: tuple[str, ...] = ()
    block_size: Annotated[int, Field(ge=1)] | None = None  # tokens, until its events say it; None: 16 until then
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an address that begins with http:// or https:// is needed")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError("an address of host, port and path alone is needed")
        return value.rstrip("/")


class Caps(_Section):
    """What a tenant's own wishes may reach; the operator's policy is not bound by it."""

    max_priority: Annotated[int, Field(ge=0, le=100)] = 100
    max_ttl: str = "1h"
    max_hold: str = "5min"
    share: tuple[Literal["session", "run", "tenant", "global"], ...] = words.SHARES[:3]  # type: ignore[assignment]
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    concurrent: Annotated[int, Field(ge=1)] | None = None

    @field_validator("max_ttl", "max_hold")
    @classmethod
    def _duration(cls, value: str) -> str:
        try:
            parse_duration(value)
        except (ValueError, InputFault):
            raise ValueError(f"{value!r} is no duration; write 30s or 10min") from None
        return value


class TenantSection(_Section):
    """A tenant. keys: SHA-256 of its API keys in hex (`kvp serve --hash-key` prints one), never the keys."""

    name: Text
    keys: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...] = ()
    plan: str | None = None
    policy: str | None = None
    mode: Mode | None = None
    caps: Caps = Caps()


class Jwt(_Section):
    """Tokens instead of keys: the tenant is the value of `claim`, its plan that of `plan_claim`. key_file: a public key
    in PEM, or for HS256 the shared secret."""

    key_file: Text
    algorithms: tuple[str, ...] = ("RS256",)
    audience: str | None = None
    issuer: str | None = None
    claim: str = "tenant"
    plan_claim: str | None = None


class PolicySection(_Section):
    """name: a file or a packaged policy. share: the part of owners for whom it is in force, the rest is shadowed.
    models: other policies by model. offered: those that a client may ask for by name. canary: other policies for a part
    of owners each (0.1 is a tenth of them), for tenants without a policy of their own."""

    name: Text = "coding_agent"
    mode: Mode = "enforce"
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    models: dict[str, str] = {}
    offered: tuple[str, ...] = ()
    canary: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}


class Limits(_Section):
    """Bounds of one request, and times. Seconds, bytes. decide_within_s: then a request goes on without a plan.
    header_s, body_s: from a request's first byte to the end of its head, of its body; client_idle_s: without a byte of
    the body, or with an answer that the client does not take. keepalive_s: how long a connection to an engine is kept
    unused: shorter than the engine keeps it (uvicorn's 5 s), else a request meets one that is just being closed.
    clients: connections at once, connections: to one engine. drain_s: after SIGTERM, for requests that run.
    state_rows: events and assumed functions that a document may tell of a state, nodes and edges ten times as many."""

    body_bytes: Annotated[int, Field(ge=1024)] = 64 << 20
    header_bytes: Annotated[int, Field(ge=1024)] = 32 << 10
    decide_within_s: Annotated[float, Field(gt=0)] = 0.02
    connect_s: Annotated[float, Field(gt=0)] = 5.0
    first_byte_s: Annotated[float, Field(gt=0)] = 600.0
    idle_s: Annotated[float, Field(gt=0)] = 300.0
    keepalive_s: Annotated[float, Field(gt=0)] = 3.0
    header_s: Annotated[float, Field(gt=0)] = 10.0
    body_s: Annotated[float, Field(gt=0)] = 300.0
    client_idle_s: Annotated[float, Field(gt=0)] = 60.0
    clients: Annotated[int, Field(ge=1)] = 4096
    connections: Annotated[int, Field(ge=1)] = 1000
    drain_s: Annotated[float, Field(ge=0)] = 30.0
    state_rows: Annotated[int, Field(ge=1, le=100_000)] = 1000


class Listen(_Section):
    """Where clients come in. cert_file, key_file: TLS; client_ca_file: only clients with a certificate of it."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    cert_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None

    @model_validator(mode="after")
    def _together(self) -> Listen:
        if self.cert_file is None and (self.key_file is not None or self.client_ca_file is not None):
            raise ValueError("cert_file is needed beside key_file and client_ca_file")
        return self


class Routing(_Section):
    """Among several engines. load_tokens: how many cached tokens a running request is worth. pin_s: how long a session
    that `place: same_worker` put on an engine stays there after its last request. pin_slack: how many requests more
    than another its engine may have."""

    load_tokens: Annotated[float, Field(ge=0)] = 512.0
    pin_s: Annotated[float, Field(gt=0)] = 600.0
    pin_slack: Annotated[int, Field(ge=0)] = 8


class Store(_Section):
    """redis: its URL (rediss:// for TLS); none: this process alone. file: where learned times survive a restart."""

    redis: str | None = None
    prefix: Text = "kvpolicy"
    file: str | None = None


class Admin(_Section):
    """key: SHA-256 of the operator's key in hex. Without one the admin routes answer loopback only, and there no
    request that a proxy passed on. `/metrics` is one of them where tenants are configured, for it names them;
    metrics_key: SHA-256 of a key that opens it alone; metrics_open: anybody may read it."""

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    metrics_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    metrics_open: bool = False

    @model_validator(mode="after")
    def _apart(self) -> Admin:
        if self.metrics_key is not None and self.metrics_key == self.key:
            raise ValueError("metrics_key must be another than key: who reads metrics is not the operator")
        return self


class Log(_Section):
    """decisions: a file of JSON lines, `-` for stderr. sample: the part of requests that is written."""

    decisions: str | None = None
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0


class Trace(_Section):
    """OpenTelemetry (extra `otel`). endpoint: of an OTLP/HTTP collector, such as http://127.0.0.1:4318/v1/traces; none:
    no spans. sample: the part of traces that begin here; one that a client began is followed as it says."""

    endpoint: str | None = None
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0


class Config(_Section):
    """The whole file. secret_file: the key of minted salts and of hashes in logs; none: made at the start. closed: an
    engine's own routes that no client may reach through the gateway."""

    upstream: Annotated[tuple[Upstream, ...], Field(min_length=1)]
    tenant: tuple[TenantSection, ...] = ()
    jwt: Jwt | None = None
    policy: PolicySection = PolicySection()
    limits: Limits = Limits()
    routing: Routing = Routing()
    store: Store = Store()
    admin: Admin = Admin()
    log: Log = Log()
    listen: Listen = Listen()
    trace: Trace = Trace()
    closed: tuple[str, ...] = CLOSED
    secret_file: str | None = None

    @property
    def open(self) -> bool:
        """Whether no keys are asked."""
        return not self.tenant and self.jwt is None


def read_config(path: str) -> Config:
    """The configuration of a file. Raises InputFault with the place and the mend; OSError passes."""
    return checked_config(read_document(path), path)


def read_document(path: str) -> dict[str, Any]:
    """What a file says, not looked at yet. Raises InputFault for what is no TOML; OSError passes."""
    raw = Path(path).read_bytes()
    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise InputFault(f"{path}: not TOML: {fault}") from None


def checked_config(document: object, name: str) -> Config:
    """The configuration of a document. Raises InputFault naming the key."""
    try:
        return Config.model_validate(document, strict=False)
    except ValidationError as fault:
        errors = fault.errors()
        # What is wrong inside a list leaves the list shorter: of that, only what is wrong inside is said.
        inner = [e for e in errors if not any(len(o["loc"]) > len(e["loc"]) == _shared(o, e) for o in errors)]
        raise InputFault("; ".join(_said(error, name) for error in inner[:5])) from None


def _shared(one: Any, other: Any) -> int:
    """How many parts of two places are the same, from the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one["loc"], other["loc"], strict=False)))


def _said(error: object, name: str) -> str:
    told = dict(error)  # type: ignore[call-overload]
    where = ".".join(str(part) for part in told["loc"])
    if told["type"] == "string_pattern_mismatch" and {"key", "keys"} & set(told["loc"]):
        return f"{name}: {where}: {NO_KEY_HASH}"
    if told["type"] == "extra_forbidden":
        section = _section(told["loc"][:-1])
        near = get_close_matches(str(told["loc"][-1]), section, n=1)
        return f"{name}: {where}: there is no such key" + (f"; did you mean {near[0]!r}?" if near else "")
    return f"{name}: {where}: {told['msg'].removeprefix('Value error, ')}"


def _section(loc: tuple[object, ...]) -> list[str]:
    """The keys of the section at a place."""
    model: type[BaseModel] = Config
    for part in loc:
        if isinstance(part, int):
            continue
        annotation = str(model.model_fields[str(part)].annotation) if str(part) in model.model_fields else ""
        model = next((s for s in _SECTIONS if f".{s.__name__}" in annotation), model)
    return list(model.model_fields)


_SECTIONS: tuple[type[BaseModel], ...] = (
    Upstream, Caps, TenantSection, Jwt, PolicySection, Limits, Routing, Store, Admin, Log, Listen, Trace,
)  # fmt: skip

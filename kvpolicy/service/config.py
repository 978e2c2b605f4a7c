"""The service's configuration: a TOML file, checked by pydantic, with a clear fault for each wrong key.

Read once at the start by `kvp serve`; policies are read by their own loader, so that they can change while it runs.
Without a file one tenant is assumed, no keys are asked, and only loopback is listened on.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.units import parse_duration

Mode = Literal["off", "shadow", "enforce"]
Text = Annotated[str, Field(min_length=1, max_length=256)]


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Upstream(_Section):
    """An engine. url: its base address. carrier: how a request's directives reach it. channel: address of its control
    channel, events: of its KV events with replay. models: names it serves; empty: any."""

    url: Text
    name: str | None = None
    carrier: Literal["kv_transfer_params", "vllm_xargs", "none"] = "vllm_xargs"
    channel: str | None = None
    channel_token_file: str | None = None
    events: str | None = None
    replay: str | None = None
    models: tuple[str, ...] = ()
    block_size: Annotated[int, Field(ge=1)] | None = None  # None: asked from the engine
    ca_file: str | None = None

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("an address that begins with http:// or https:// is needed")
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
    """Tokens instead of keys: the tenant is the value of `claim`."""

    key_file: Text
    algorithms: tuple[str, ...] = ("RS256",)
    audience: str | None = None
    issuer: str | None = None
    claim: str = "tenant"


class PolicySection(_Section):
    """name: a file or a packaged policy. share: the part of owners for whom it is in force, the rest is shadowed.
    models: other policies by model. offered: those that a client may ask for by name."""

    name: Text = "coding_agent"
    mode: Mode = "enforce"
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    models: dict[str, str] = {}
    offered: tuple[str, ...] = ()


class Limits(_Section):
    """Bounds of one request, and times. Seconds, bytes."""

    body_bytes: Annotated[int, Field(ge=1024)] = 64 << 20
    header_bytes: Annotated[int, Field(ge=1024)] = 32 << 10
    decide_within_s: Annotated[float, Field(gt=0)] = 0.02
    connect_s: Annotated[float, Field(gt=0)] = 5.0
    first_byte_s: Annotated[float, Field(gt=0)] = 600.0
    idle_s: Annotated[float, Field(gt=0)] = 300.0
    client_idle_s: Annotated[float, Field(gt=0)] = 60.0
    connections: Annotated[int, Field(ge=1)] = 1000
    drain_s: Annotated[float, Field(ge=0)] = 30.0


class Store(_Section):
    """redis: its URL (rediss:// for TLS); none: this process alone. file: where learned times survive a restart."""

    redis: str | None = None
    prefix: Text = "kvpolicy"
    file: str | None = None


class Admin(_Section):
    """key: SHA-256 of the operator's key in hex. Without one the admin routes answer loopback only."""

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class Log(_Section):
    """decisions: a file of JSON lines, `-` for stderr. sample: the part of requests that is written."""

    decisions: str | None = None
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0


class Config(_Section):
    """The whole file. secret_file: the key of minted salts and of hashes in logs; none: made at the start."""

    upstream: Annotated[tuple[Upstream, ...], Field(min_length=1)]
    tenant: tuple[TenantSection, ...] = ()
    jwt: Jwt | None = None
    policy: PolicySection = PolicySection()
    limits: Limits = Limits()
    store: Store = Store()
    admin: Admin = Admin()
    log: Log = Log()
    secret_file: str | None = None
    trusted: bool = False  # clients behind this gateway may state events and spans for any owner of their tenant

    @property
    def open(self) -> bool:
        """Whether no keys are asked."""
        return not self.tenant and self.jwt is None


def read_config(path: str) -> Config:
    """The configuration of a file. Raises InputFault with the place and the mend; OSError passes."""
    raw = Path(path).read_bytes()
    try:
        document = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise InputFault(f"{path}: not TOML: {fault}") from None
    return checked_config(document, path)


def checked_config(document: object, name: str) -> Config:
    """The configuration of a document. Raises InputFault naming the key."""
    try:
        return Config.model_validate(document, strict=False)
    except ValidationError as fault:
        raise InputFault("; ".join(_said(error, name) for error in fault.errors()[:5])) from None


def _said(error: object, name: str) -> str:
    told = dict(error)  # type: ignore[call-overload]
    where = ".".join(str(part) for part in told["loc"])
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


_SECTIONS: tuple[type[BaseModel], ...] = (Upstream, Caps, TenantSection, Jwt, PolicySection, Limits, Store, Admin, Log)

"""How commands reach Redis: one server, a Sentinel's master, or the nodes of a cluster. The only module with redis-py.

A wire sends a batch and gives an answer or an exception for each command; it is used by one thread (`link`). redis-py
keeps the connections, speaks the protocol and TLS, follows Sentinel, and knows which node of a cluster has which slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from kvpolicy.faults import InputFault
from kvpolicy.store.scripts import DIGESTS, SCRIPTS

Faults = (redis.RedisError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Command:
    """A script by its name, or a command of Redis in capitals. All keys lie in one slot."""

    name: str
    keys: tuple[str, ...]
    arguments: tuple[bytes | str | int, ...] = ()


class Wire(Protocol):
    """Sends commands; used by one thread."""

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """An answer or a RedisError for each command. Raises one of `Faults` where it is not known what was done."""

    def close(self) -> None:
        """Let go of all connections."""


def connect(url: str, timeout: float) -> Wire:
    """The wire to `url`:

    `redis://HOST:PORT/DB`, `rediss://…` with TLS, `unix://PATH`; several servers after `+cluster` or `+sentinel`:
    `redis+cluster://HOST:PORT,HOST:PORT`, `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`. What stands behind `?` goes
    to redis-py (`ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `db`, …); `sentinel_username` and `sentinel_password`
    are for the Sentinels. timeout: seconds, of one answer. Raises InputFault for a URL that cannot be used. Connects
    to nobody yet, but for a cluster.
    """
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss", "unix") or kind not in ("", "cluster", "sentinel"):
        raise InputFault(
            f"'{parts.scheme}://…' is no address of a Redis: redis://, rediss://, unix://, redis+cluster://, "
            "redis+sentinel:// (rediss+…:// with TLS)"
        )
    every: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),  # trying again is for `link`, which knows how long
        "protocol": 2,
    }
    if not kind:
        try:
            return One(redis.Redis.from_url(url, **every))
        except (ValueError, TypeError) as fault:
            raise InputFault(f"the address of Redis cannot be used: {fault}") from None
    options = {name: _option(name, value) for name, value in parse_qsl(parts.query)}
    if scheme == "rediss":
        options["ssl"] = True
    for name in ("username", "password"):
        if getattr(parts, name):
            options[name] = unquote(getattr(parts, name))
    hosts = _hosts(parts.netloc, 7000 if kind == "cluster" else 26379)
    if kind == "cluster":
        return Cluster(hosts, {**every, **options})
    master = parts.path.strip("/")
    if not master:
        raise InputFault("the address of a Sentinel ends with the name of its master: redis+sentinel://HOST:PORT/NAME")
    own = {name: options.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in options}
    if scheme == "rediss":
        own |= {name: value for name, value in options.items() if name.startswith("ssl")}
    sentinel: Any = Sentinel
    return One(sentinel(hosts, sentinel_kwargs={**every, **own}, **every, **options).master_for(master))


def shown(url: str) -> str:
    """The address without its password and options."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _option(name: str, text: str) -> Any:
    if name.endswith(("password", "username")):
        return text
    if text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    return int(text) if text.isdigit() else text


def _hosts(netloc: str, port: int) -> list[tuple[str, int]]:
    hosts = []
    for place in netloc.rpartition("@")[2].split(","):
        host, colon, number = place.rpartition(":") if not place.endswith("]") else (place, "", "")
        if not colon:
            host, number = place, str(port)
        if not host or not number.isdigit() or not 0 < int(number) < 65536:
            raise InputFault(f"'{place}' is no HOST:PORT of a Redis")
        hosts.append((host.strip("[]"), int(number)))
    return hosts


class One:
    """One server, or whichever Sentinel says is the master."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._prepared = False

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """See `Wire`."""
        if not self._prepared:
            prepare(self._client)
            self._prepared = True
        return send_through(self._client, commands)

    def close(self) -> None:
        """See `Wire`."""
        self._client.close()
        self._client.connection_pool.disconnect()


class Cluster:
    """A cluster: each command goes to the node that has its slot."""

    def __init__(self, hosts: list[tuple[str, int]], options: dict[str, Any]) -> None:
        node: Any = ClusterNode
        self._nodes = [node(host, port) for host, port in hosts]
        self._options = options
        self._client: Any = None
        self._prepared: set[str] = set()

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """See `Wire`. A node that moved is found at the next call: the caller sends again."""
        if self._client is None:
            self._client = RedisCluster(startup_nodes=self._nodes, **self._options)
        answers: list[Any] = [None] * len(commands)
        by_node: dict[str, tuple[Any, list[int]]] = {}
        for place, command in enumerate(commands):
            node = self._client.get_node_from_key(command.keys[0])
            by_node.setdefault(node.name, (node, []))[1].append(place)
        for name, (node, places) in by_node.items():
            client = self._client.get_redis_connection(node)
            if name not in self._prepared:
                prepare(client)
                self._prepared.add(name)
            got = send_through(client, [commands[place] for place in places])
            for place, answer in zip(places, got, strict=True):
                answers[place] = answer
        return answers

    def close(self) -> None:
        """See `Wire`."""
        if self._client is not None:
            self._client.close()
            self._client = None
            self._prepared.clear()


def prepare(client: Any) -> None:
    """Let a node know all scripts, so that those of a batch run in its order: one that is not known runs last."""
    pipe = client.pipeline(transaction=False)
    for text in SCRIPTS.values():
        pipe.execute_command("SCRIPT", "LOAD", text)
    pipe.execute(raise_on_error=False)  # where that is not permitted, they are sent whole each time


def send_through(client: Any, commands: Sequence[Command]) -> list[Any]:
    """One pipeline to one node. Scripts that it does not know (it forgot them since) are sent whole."""
    pipe = client.pipeline(transaction=False)
    for command in commands:
        digest = DIGESTS.get(command.name)
        if digest is None:
            pipe.execute_command(command.name, *command.keys, *command.arguments)
        else:
            pipe.execute_command("EVALSHA", digest, len(command.keys), *command.keys, *command.arguments)
    answers: list[Any] = pipe.execute(raise_on_error=False)
    unknown = [place for place, answer in enumerate(answers) if isinstance(answer, redis.exceptions.NoScriptError)]
    if unknown:
        prepare(client)
        pipe = client.pipeline(transaction=False)
        for place in unknown:
            command = commands[place]
            text = SCRIPTS[command.name]
            pipe.execute_command("EVAL", text, len(command.keys), *command.keys, *command.arguments)
        for place, answer in zip(unknown, pipe.execute(raise_on_error=False), strict=True):
            answers[place] = answer
    return answers

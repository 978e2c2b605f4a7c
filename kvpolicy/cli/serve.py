"""`kvp serve`: starts the gateway in front of engines and stays until it is told to stop.

Prints one JSON line with its address when it is ready; logs go to stderr. Without a configuration file one tenant is
assumed, no keys are asked, and only loopback is listened on.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvpolicy.faults import InputFault, install

HELP = "Start the gateway: an OpenAI- and Anthropic-compatible proxy that plans what engines keep."
OF_UPSTREAMS = (
    "channel",
    "channel_token_file",
    "events",
    "replay",
    "name",
)  # what may stand behind an engine's address
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--upstream URL… [--channel A…] [--policy P] [--mode M] [--config FILE] [--host H] [--port N]`."""
    parser.add_argument("--host", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, help="0 takes a free one (default)")
    parser.add_argument(
        "--upstream",
        action="append",
        default=[],
        metavar="URL[,channel=ADDRESS]",
        help=f"an engine; may be repeated, with more behind commas ({', '.join(OF_UPSTREAMS)})",
    )
    parser.add_argument(
        "--channel",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="the engine's control channel, by which plans change between requests, such as unix:/path; with several "
        "engines one for each, in their order",
    )
    parser.add_argument("--policy", metavar="P", help="a .kvp file, or a packaged policy; default: coding_agent")
    parser.add_argument("--mode", choices=("off", "shadow", "enforce"), help="default: enforce")
    parser.add_argument("--config", metavar="FILE", help="a TOML file; the options above come before it")
    parser.add_argument("--hash-key", action="store_true", help="read a key from the standard input, print its hash")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises InputFault for a configuration that cannot be, PolicyFault for a policy
    with errors."""
    if args.hash_key:
        import sys

        from kvpolicy.service.tenants import hash_key

        key = sys.stdin.readline().strip()
        if not key:
            raise InputFault(
                "--hash-key: there is no key on the standard input; printf 'the key' | kvp serve --hash-key"
            )
        print(hash_key(key))
        return 0
    try:
        from kvpolicy.listening import Bounds, Tls, serve
        from kvpolicy.service.assembly import assemble
        from kvpolicy.service.collecting import in_small_parts
        from kvpolicy.service.following import Source
    except ImportError as fault:
        raise InputFault(f"kvp serve needs {fault.name}: {install('serve')}") from None
    config = read(args)
    listen, limits = config.listen, config.limits
    if config.open and listen.host not in LOOPBACK:
        raise InputFault(f"without tenants and keys only loopback is listened on, not {listen.host}: see --config")
    source = None if args.config is None else Source(Path(args.config), partial(read, args))
    app, gateway = assemble(config, source=source)
    tls = None if listen.cert_file is None else Tls(listen.cert_file, listen.key_file, listen.client_ca_file)
    bounds = Bounds(limits.header_bytes, limits.header_s, limits.clients)
    with in_small_parts():
        return serve(app, listen.host, listen.port, tls=tls, bounds=bounds, stopping=gateway.stop)


def read(args: argparse.Namespace) -> Any:
    """The configuration: the file's, with what the options say instead."""
    from kvpolicy.service.config import checked_config, read_document

    document: dict[str, Any] = {}
    if args.config is not None:
        document = read_document(args.config)
        checked_config(document, args.config)  # faults of the file are told before those of options
    if args.upstream:
        document["upstream"] = [_upstream(told) for told in args.upstream]
    upstreams = document.get("upstream")
    if not upstreams:
        raise InputFault("an engine is needed: --upstream http://127.0.0.1:8000, or [[upstream]] in --config")
    if args.channel:
        if len(args.channel) != len(upstreams):
            raise InputFault(
                f"--channel: {len(args.channel)} of them for {len(upstreams)} engines; give one for each, in the "
                "order of the engines, or --upstream URL,channel=ADDRESS"
            )
        document["upstream"] = [{**row, "channel": at} for row, at in zip(upstreams, args.channel, strict=True)]
    listen = document.setdefault("listen", {})
    if args.host is not None:
        listen["host"] = args.host
    if args.port is not None:
        listen["port"] = args.port
    policy = document.setdefault("policy", {})
    if args.policy is not None:
        policy["name"] = args.policy
    if args.mode is not None:
        policy["mode"] = args.mode
    return checked_config(document, args.config or "options")


def _upstream(told: str) -> dict[str, str]:
    """An engine as `--upstream` gives it: its address, and what stands behind commas. Raises InputFault."""
    url, *others = told.split(",")
    row = {"url": url}
    for each in others:
        name, equals, value = each.partition("=")
        if name not in OF_UPSTREAMS or not equals or not value:
            raise InputFault(f"--upstream {told}: {each!r}: one of {', '.join(OF_UPSTREAMS)} is needed, as NAME=VALUE")
        row[name] = value
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        near = f"; did you mean http://{url}?" if "://" not in url and urlsplit(f"http://{url}").hostname else ""
        raise InputFault(f"--upstream {told}: an address that begins with http:// or https:// is needed{near}")
    return row

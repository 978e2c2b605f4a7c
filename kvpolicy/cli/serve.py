"""`kvp serve`: starts the gateway in front of engines and stays until it is told to stop.

Prints one JSON line with its address when it is ready; logs go to stderr. Without a configuration file one tenant is
assumed, no keys are asked, and only loopback is listened on.
"""

from __future__ import annotations

import argparse
from typing import Any

from kvpolicy.faults import InputFault

HELP = "Start the gateway: an OpenAI- and Anthropic-compatible proxy that plans what engines keep."
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--upstream URL… [--policy P] [--mode M] [--config FILE] [--host H] [--port N]`."""
    parser.add_argument("--host", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, help="0 takes a free one (default)")
    parser.add_argument("--upstream", action="append", default=[], metavar="URL", help="an engine; may be repeated")
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

        print(hash_key(sys.stdin.readline().strip()))
        return 0
    try:
        from kvpolicy.listening import Bounds, Tls, serve
        from kvpolicy.service.assembly import assemble
    except ImportError as fault:
        raise InputFault(f"kvp serve needs {fault.name}: pip install 'kvpolicy[serve]'") from None
    config = read(args)
    listen, limits = config.listen, config.limits
    if config.open and listen.host not in LOOPBACK:
        raise InputFault(f"without tenants and keys only loopback is listened on, not {listen.host}: see --config")
    app, gateway = assemble(config)
    tls = None if listen.cert_file is None else Tls(listen.cert_file, listen.key_file, listen.client_ca_file)
    bounds = Bounds(limits.header_bytes, limits.header_s, limits.clients)
    return serve(app, listen.host, listen.port, tls=tls, bounds=bounds, stopping=gateway.stop)


def read(args: argparse.Namespace) -> Any:
    """The configuration: the file's, with what the options say instead."""
    import tomllib
    from pathlib import Path

    from kvpolicy.service.config import checked_config, read_config

    document: dict[str, Any] = {}
    if args.config is not None:
        read_config(args.config)  # faults of the file are told with its name
        document = tomllib.loads(Path(args.config).read_text(encoding="utf-8"))
    if args.upstream:
        document["upstream"] = [{"url": url} for url in args.upstream]
    if not document.get("upstream"):
        raise InputFault("an engine is needed: --upstream http://127.0.0.1:8000, or [[upstream]] in --config")
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
    return checked_config(document, args.config or "kvp serve")

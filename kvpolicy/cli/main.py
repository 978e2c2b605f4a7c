"""`kvp`: finds the command's module, runs it, and turns every fault into one line and an exit status.

Reads `sys.argv`; only the module of the command that was asked for is imported, so that `kvp --help` starts fast.
Exit status: 0 fine, 1 the thing checked has faults, 2 the call or a file could not be used. No traceback reaches
a user, unless KVPOLICY_DEBUG is set.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NoReturn, Protocol, cast

from kvpolicy import __version__
from kvpolicy.faults import InputFault, KvpError, PolicyFault

FINE, FAULTY, UNUSABLE = 0, 1, 2

# name -> one line for `kvp --help`. The module is `kvpolicy.cli.NAME`; a command is offered where it exists.
COMMANDS: dict[str, str] = {
    "check": "parse and check policies",
    "fmt": "lay out policies in the canonical way",
    "test": "run the test blocks of policies",
    "explain": "say which rule decides each property of a span, and why",
    "diff": "where two policies decide differently",
    "plan": "the directives for one request",
    "replay": "step a timeline through the embedded engine",
    "simulate": "replay a trace under policies, beside LRU and the bounds",
    "trace": "get and describe public traces",
    "record": "make a trace without text out of logs of real traffic",
    "bench": "measure policies with seeds and intervals, and write the report",
    "advise": "which policy would help a trace, and by how much",
    "graph": "a workflow with the steps to each node's next use",
    "engine": "a simulated inference server with real KV accounting",
    "serve": "the gateway in front of engines",
    "run": "start an inference engine so that its eviction follows ranks",
    "doctor": "examine an inference engine that runs: what works, what is missing",
    "lsp": "the language server, for editors",
}


class Command(Protocol):
    """What a module of `kvpolicy.cli` offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit status. Raises KvpError or OSError where a file or the call cannot be used."""
        ...


def offered() -> dict[str, str]:
    """The commands whose module is there, in the order of the table."""
    return {name: line for name, line in COMMANDS.items() if find_spec(f"kvpolicy.cli.{name}") is not None}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; argparse itself leaves by SystemExit after a --help."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a letter must not end the command
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return _dispatch(words)
        finally:  # also when argparse leaves after its help: a reader that went away is noticed here
            sys.stdout.flush()
    except PolicyFault as fault:
        from kvpolicy.cli.colour import paint_for
        from kvpolicy.cli.listing import as_text, texts_of

        print(as_text(fault.diagnostics, texts_of(fault.diagnostics), paint_for(sys.stderr)), file=sys.stderr)
        return FAULTY
    except KeyboardInterrupt:
        return _refuse("stopped")
    except BrokenPipeError:
        # Python flushes stdout once more at exit; there must be something to flush into. Nothing is said, as by other
        # programs in a pipe: who reads no further, as `head`, knows it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except (KvpError, OSError, UnicodeDecodeError) as fault:
        _trace_if_asked()
        return _refuse(_one_line(fault))
    except Exception as fault:  # the last line of defence: a fault of ours is still one line
        _trace_if_asked()
        return _refuse(
            f"internal fault, please report it: {type(fault).__name__}: {_flat(str(fault))} "
            "(KVPOLICY_DEBUG=1 shows the traceback)"
        )


def _open_what_is_closed() -> None:
    """Where the caller has closed a standard stream, Python has None for it, and the next file would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


class _Parser(argparse.ArgumentParser):
    """One whose faults are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("kvp").lstrip()
        raise InputFault(f"{command and command + ': '}{message}; {self.prog} --help says more")


def _dispatch(words: list[str]) -> int:
    """Parse the words with the parser of their command, and run it."""
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None or words[0] != name:
        parser = _top_parser()
        parser.parse_args(words)
        parser.print_help(sys.stderr)
        return UNUSABLE
    commands = offered()
    if name not in commands:
        return _refuse(f"there is no command {name!r}{_nearest(name, commands)} kvp --help lists them")
    command = cast(Command, import_module(f"kvpolicy.cli.{name}"))
    parser = _Parser(prog=f"kvp {name}", description=command.HELP)
    command.add_arguments(parser)
    return command.run(parser.parse_args(words[1:]))


def _top_parser() -> argparse.ArgumentParser:
    """The parser of `kvp` itself: help and version."""
    lines = [f"  {name:<10} {line}" for name, line in offered().items()]
    parser = _Parser(
        prog="kvp",
        usage="kvp COMMAND …",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Says what an LLM server keeps in its KV cache, and carries it out.",
        epilog="commands (kvp COMMAND --help says more):\n"
        + "\n".join(lines)
        + "\n\nexit status: 0 fine, 1 the thing checked has faults, 2 the call or a file could not be used",
    )
    parser.add_argument("--version", action="version", version=f"kvp {__version__}")
    return parser


def _nearest(name: str, commands: dict[str, str]) -> str:
    """`; did you mean 'check'?` where a command is spelt nearly so, else `;`."""
    from difflib import get_close_matches

    near = get_close_matches(name, commands, n=1)
    return f"; did you mean {near[0]!r}?" if near else ";"


def _one_line(fault: Exception) -> str:
    """The fault as a user reads it: the file first, no exception names."""
    if isinstance(fault, UnicodeDecodeError):
        return f"not UTF-8 text: byte 0x{fault.object[fault.start]:02x} at offset {fault.start}"
    if isinstance(fault, OSError) and fault.strerror:
        reason = fault.strerror[0].lower() + fault.strerror[1:]
        return f"{fault.filename}: {reason}" if fault.filename is not None else reason
    return _flat(str(fault)) or type(fault).__name__


def _flat(text: str) -> str:
    """Text on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def _refuse(message: str) -> int:
    print(f"kvp: {message}", file=sys.stderr)
    return UNUSABLE


def _trace_if_asked() -> None:
    if os.environ.get("KVPOLICY_DEBUG"):
        import traceback

        traceback.print_exc()

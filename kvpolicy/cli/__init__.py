"""The command line: `main` finds the command, one module a command does it.

A command module offers `HELP` (a paragraph), `add_arguments(parser)` and `run(args) -> int`.
"""

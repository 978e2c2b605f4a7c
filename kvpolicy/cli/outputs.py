"""Files that a command writes, beside those that it reads: one must never be begun anew over the other.

Commands with an option for an output ask here before they open it; what is asked is what the file system says of both.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping

from kvpolicy.faults import InputFault


def refuse_overwriting(outputs: Mapping[str, str | None], inputs: Iterable[str]) -> None:
    """outputs: paths by their option, None where it is not given; inputs: paths, `-` for the standard input; what is no
    file, such as the name of a packaged policy, is passed over. Raises InputFault where a file would be written over
    one that is read, under whatever name (links, other spellings), or two outputs are one file."""
    read = {name: found for name in inputs if (found := _state(name)) is not None}
    written: dict[str, tuple[str, os.stat_result | None]] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        at = _state(path)
        # INVARIANT: no command destroys a file that it was asked to read.
        for name, found in read.items():
            if at is not None and os.path.samestat(at, found):
                also = "" if name == path else f", which is {name}"
                raise InputFault(f"{option} {path}{also}: it is read by this call; write to another file")
        for other, (name, found_there) in written.items():
            same = at is not None and found_there is not None and os.path.samestat(at, found_there)
            if same or os.path.realpath(path) == os.path.realpath(name) and not _special(path):
                raise InputFault(f"{option} {path}: {other} is written there; write to another file")
        written[option] = (path, at)


def _state(name: str) -> os.stat_result | None:
    """What the system knows of a regular file; None of anything else: devices and pipes can be read and written."""
    try:
        found = os.fstat(sys.stdin.fileno()) if name == "-" else os.stat(name)
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path)

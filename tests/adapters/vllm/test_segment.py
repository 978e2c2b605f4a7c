"""Segments of the ranked queue: their standings are never compared by the segments themselves."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from kvpolicy.adapters.vllm.segment import Rank, Segment
rank = Rank(1)
whole = Segment([1, 2], None, 5, 0, rank)
whole.entry = (5, 0, 0, whole)  # as the queue makes one that is released here
rank.line.append(whole.entry)
rank.leave(whole)
part = Segment([1], None, 5, 0, rank)
rank.enter(part)
print(rank.first() is part)
"""


def test_the_first_part_of_a_process_meets_the_void_entry_of_its_whole() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr

"""Texts of policies to try: the corpus and the packaged policies, whole and damaged, many rules, deep nests, noise."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz import damage

ROOT = Path(__file__).resolve().parents[2]
LARGE = 300  # rules or levels at most: a file of an ordinary author has dozens


@cache
def known() -> tuple[str, ...]:
    """Every policy text of the repository."""
    files = sorted((*(ROOT / "tests" / "corpus").rglob("*.kvp"), *(ROOT / "policies").glob("*.kvp")))
    return tuple(file.read_text(encoding="utf-8") for file in files)


def written(chance: Random, grown: list[str]) -> bytes:
    """A policy file's bytes. grown: the statements of one that the grammar-based strategy made."""
    what = chance.randrange(20)
    text = "\n".join(grown)
    if what < 6:
        text = damage.text(chance, chance.choice(known()))
    elif what < 8:
        text = damage.text(chance, text)
    elif what < 10:
        text = _spliced(chance)
    elif what == 10:
        text = damage.nested(chance, chance.choice((3, 30, LARGE, 5000)))
    elif what == 11:
        text = _many(chance)
    elif what == 12:
        text = "".join(chance.choice(damage.SCRAPS) + chance.choice((" ", "")) for _ in range(chance.randrange(200)))
    elif what == 13:
        return chance.randbytes(chance.choice((0, 1, 10, 3000)))
    elif what == 14:
        text = chance.choice(known()) + "\n" + text
    data = text.encode("utf-8", "surrogatepass")
    if what == 15:
        data = damage.raw(chance, chance.choice(known()).encode())
    if chance.random() < 0.1:
        data = data.replace(b"\n", b"\r\n")
    if chance.random() < 0.05:
        data = chance.choice((b"\xef\xbb\xbf", b"\xff\xfe")) + data
    return data


def _spliced(chance: Random) -> str:
    """The lines of two texts among each other."""
    one, two = chance.choice(known()).split("\n"), chance.choice(known()).split("\n")
    at, other = chance.randrange(len(one) + 1), chance.randrange(len(two) + 1)
    return "\n".join(one[:at] + two[other : other + chance.choice((1, 5, 50))] + one[at:])


def _many(chance: Random) -> str:
    """Many rules, or one with many parts, that lie across each other."""
    count = chance.choice((10, 50, LARGE))
    numbers = range(count)
    shape = chance.randrange(11)
    match shape:
        case 0:
            rows = [f"r{i}: turn[depth > {i}] {{ priority: {i % 101} }}" for i in numbers]
        case 1:
            rows = [f"r{i}: turn[agent = a{i}] {{ priority: {i % 101} }}" for i in numbers]
        case 2:
            rows = [f"r{i}: turn{f' over r{i - 1}' if i else ''} {{ priority: {i % 101} }}" for i in numbers]
        case 3:
            rows = [f"turn when idle() > {i}s {{ priority: {i % 101} }}" for i in numbers]
        case 4:
            rows = [", ".join(f"turn[depth > {i}, tokens < {i}k]" for i in numbers) + " { priority: 3 }"]
        case 5:
            rows = [f"let l{i} = l{i + 1} + l{i + 1}" for i in numbers] + [f"let l{count} = 1s", "turn { ttl: l0 }"]
        case 6:
            guard = " and ".join(f"(idle() > {i}s or turns_ago() > {i})" for i in numbers)
            rows = [f"turn when {guard} {{ priority: 1 }}", f"turn when not ({guard}) {{ priority: 2 }}"]
        case 7:
            edges = "\n".join(f"n{chance.randrange(count)} -> n{chance.randrange(count)}" for i in numbers)
            rows = [f"workflow w {{\nagent {', '.join(f'n{i}' for i in numbers)}\n{edges}\n}}", "turn { priority: 3 }"]
        case 8:
            ways = "\n".join(
                f"n{i} -> n{chance.randrange(count)} {chance.choice((1, 30, 50))}% at most 2 -> j" for i in numbers
            )
            nodes = f"agent {', '.join(f'n{i}' for i in numbers)}\nagent x of n0\nbarrier j"
            rows = [f"workflow w {{\n{nodes}\n{ways}\n}}", "turn { priority: 3 }"]
        case 9:
            within = (
                f"workflow w{(i + 1) % (count + chance.randrange(2))} as {name}" for i in numbers for name in "ab"
            )
            rows = [f"workflow w{i} {{ {next(within)}\n{next(within)}\nagent x\nx -> a -> b }}" for i in numbers]
            rows.append(f"workflow w{count} {{ agent x }}\nturn {{ priority: 3 }}")
        case _:
            names = ", ".join(f"a{i}" for i in numbers)
            rows = [f"turn[agent in {{{names}}}, tool != a{i}] {{ priority: {i % 101} }}" for i in range(20)]
    return "\n".join(rows)

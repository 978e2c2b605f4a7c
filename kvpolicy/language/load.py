"""From file names to a file set: reads, parses, and follows every `use`.

Packaged policies are read as package data, other files relative to the file that uses them. The set goes to `check`
and `policy.compile`; each file is in it once, used ones first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from kvpolicy.faults import ERROR, Diagnostic, InputFault, Note, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.parse import LARGEST_TEXT, MOST_RULES, ParseResult, parse, too_many
from kvpolicy.language.reading import bytes_of, identity_of, reason_of
from kvpolicy.language.spelling import nearest

SUFFIX = ".kvp"


@dataclass(frozen=True, slots=True)
class LoadResult:
    """`files` is None where a fault was found; `partial` then holds what could be read, for further checks.

    `skipped`: text passed over after faults of syntax. `origins`: by the name a file has in places, the path that it
    was read from; a packaged policy has none.
    """

    files: syntax.FileSet | None
    diagnostics: tuple[Diagnostic, ...]
    partial: syntax.FileSet = field(default_factory=lambda: syntax.FileSet(()))
    skipped: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Loader:
    texts: Mapping[str, str] = field(default_factory=dict)  # path -> text that counts instead of the file's
    read: Callable[[str, str], ParseResult] = parse
    origins: dict[str, str] = field(default_factory=dict)
    members: list[syntax.Member] = field(default_factory=list)
    faults: list[Diagnostic] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    done: dict[str, syntax.Use | None] = field(default_factory=dict)  # identity -> the use that brought it in
    open: list[tuple[str, str]] = field(default_factory=list)  # (identity, name) of the files being followed

    def take(self, text: str, name: str, identity: str, use: syntax.Use | None, folder: Path | None) -> None:
        """Parse one text, then what it uses, then add it. `folder`: where its relative names start; None: packaged."""
        result: ParseResult = self.read(text, name)
        if folder is not None:
            self.origins.setdefault(name, identity)
        self.done[identity] = use
        self.faults.extend(result.diagnostics)
        self.skipped.extend(result.skipped)
        if result.file is None:
            return
        self.open.append((identity, name))
        for inner in result.file.uses:
            self.follow(inner, name, folder)
        self.open.pop()
        group = "" if use is None else group_name(use, result.file)
        self.members.append(syntax.Member(result.file, group, use.settings if use is not None else ()))

    def follow(self, use: syntax.Use, user: str, folder: Path | None) -> None:
        """Bring in what `use` names."""
        if use.is_file and folder is not None:
            path = folder / use.target
            identity = identity_of(path)
            name = os.path.join(os.path.dirname(user), use.target)
        else:
            stem = use.target.removesuffix(SUFFIX)
            identity, name = f"packaged:{stem}", stem + SUFFIX
        circle = [shown for known, shown in self.open]
        if identity in [known for known, _ in self.open]:
            at = [known for known, _ in self.open].index(identity)
            way = " → ".join((*circle[at:], name))
            self.faults.append(
                codes.USE_CYCLE.at(use.place, f"these files use each other in a circle: {way}", fix="remove one `use`")
            )
            return
        if identity in self.done:
            self._again(use, self.done[identity])
            return
        is_path = use.is_file and folder is not None
        text = self._read_used(path, name, use) if is_path else self._read_packaged(use)
        if text is not None:
            self.take(text, name, identity, use, folder=path.parent if is_path else None)

    def _again(self, use: syntax.Use, first: syntax.Use | None) -> None:
        """A file is loaded once: a second use may not give it another name or other settings."""
        if first is None or (use.alias == first.alias or use.alias is None) and use.settings in {first.settings, ()}:
            return
        message = f"'{use.target}' is already used with another name or other settings; a file is loaded once"
        note = Note(first.place, "first used here")
        self.faults.append(codes.DEFINED_TWICE.at(use.place, message, notes=(note,), fix="keep one of the two"))

    def _read_used(self, path: Path, name: str, use: syntax.Use) -> str | None:
        edited = self.texts.get(identity_of(path))
        if edited is not None:
            return edited
        try:
            data = bytes_of(path)
        except OSError as error:
            near = None
            if os.path.isdir(path.parent):
                near = nearest(path.name, (other.name for other in path.parent.glob("*" + SUFFIX)))
            message = f"the file '{use.target}' cannot be read: {reason_of(error)}"
            fix = f'did you mean "{near}"?' if near else "its name is relative to the file that uses it"
            self.faults.append(codes.UNKNOWN_NAME.at(use.place, message, fix=fix))
            return None
        return self.decode(data, name)

    def _read_packaged(self, use: syntax.Use) -> str | None:
        stem = use.target.removesuffix(SUFFIX)
        text = packaged_text(stem)
        if text is None:
            near = nearest(stem, packaged_names())
            message = f"there is no packaged policy '{use.target}'"
            fix = f"did you mean `use {near}`?" if near else f"the packaged ones are {', '.join(packaged_names())}"
            self.faults.append(codes.UNKNOWN_NAME.at(use.place, message, fix=fix + '; a file is written "NAME.kvp"'))
        return text

    def decode(self, data: bytes, name: str) -> str | None:
        """Text of bytes; None, with a fault, where they are no UTF-8 or too many."""
        if len(data) > LARGEST_TEXT:
            message = "this file is larger than 4 MiB, which no policy is"
            self.faults.append(codes.UNUSABLE.at(Place(name, 1, 1), message, fix="split it with `use`"))
            return None
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            before = data[: error.start]
            line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
            message = f"this file is not UTF-8 text: byte {error.start} cannot be read"
            self.faults.append(codes.UNUSABLE.at(Place(name, line, column), message, fix="save it as UTF-8"))
            return None

    def result(self) -> LoadResult:
        rules = [rule for member in self.members for rule in member.file.rules]
        if len(rules) > MOST_RULES:  # no further check is of use
            return LoadResult(
                None, (too_many(rules[MOST_RULES].place),), skipped=tuple(self.skipped), origins=self.origins
            )
        files = syntax.FileSet(tuple(self.members))
        faulty = any(fault.severity == ERROR for fault in self.faults)
        return LoadResult(None if faulty else files, tuple(self.faults), files, tuple(self.skipped), self.origins)


def load(targets: Sequence[str | Path]) -> LoadResult:
    """Load files, or packaged policies by name, as one set.

    A target is a path; a name without `.kvp` and folder that is no file here is a packaged policy. Raises InputFault
    where a target cannot be read at all.
    """
    loader = _Loader()
    for target in targets:
        name, path = str(target), Path(target)
        if _is_packaged(target):
            stem = name.removesuffix(SUFFIX)
            identity, text = f"packaged:{stem}", packaged_text(stem)
            folder: Path | None = None
            name = stem + SUFFIX
        else:
            try:
                data = bytes_of(path)
            except (OSError, ValueError) as error:
                raise InputFault(f"{name}: cannot be read: {reason_of(error)}{_hint(name)}") from None
            identity, folder = identity_of(path), path.parent
            text = None if identity in loader.done else loader.decode(data, name)
        if text is not None and identity not in loader.done:
            loader.take(text, name, identity, None, folder)
    return loader.result()


def load_text(text: str, name: str = "<text>", folder: Path | None = None) -> LoadResult:
    """Load one text. `folder`: where the files it uses are looked for; by default the working directory."""
    loader = _Loader()
    loader.take(text, name, f"text:{name}", None, folder if folder is not None else Path())
    return loader.result()


def load_edited(
    paths: Sequence[Path], texts: Mapping[str, str], read: Callable[[str, str], ParseResult] = parse
) -> LoadResult:
    """Load files while they are edited: `texts` counts instead of what lies at a resolved path, also for files that
    are used. Names in places are relative to the first file's folder. read: `parse`, or one that remembers."""
    loader = _Loader(texts, read)
    for path in paths:
        identity = identity_of(path)
        if identity in loader.done:
            continue
        edited = texts.get(identity)
        try:
            text = edited if edited is not None else loader.decode(bytes_of(path), path.name)
        except (OSError, ValueError) as error:
            raise InputFault(f"{path.name}: cannot be read: {reason_of(error)}") from None
        if text is not None:
            loader.take(text, path.name, identity, None, path.parent)
    return loader.result()


def group_name(use: syntax.Use, file: syntax.File) -> str:
    """Under which name a used file's layers come in: the alias, else the policy's own name, else the file's stem."""
    if use.alias is not None:
        return use.alias
    if file.header is not None:
        return file.header.name
    return Path(use.target).name.removesuffix(SUFFIX)


def packaged_names() -> tuple[str, ...]:
    """The names of the policies that come with the package."""
    folder = resources.files("kvpolicy.policies")
    names = (entry.name for entry in folder.iterdir() if entry.name.endswith(SUFFIX))
    return tuple(sorted(name.removesuffix(SUFFIX) for name in names if not name.endswith(".test" + SUFFIX)))


def packaged_text(name: str) -> str | None:
    """The text of a packaged policy, None where there is none of that name."""
    found = (entry for entry in resources.files("kvpolicy.policies").iterdir() if entry.name == name + SUFFIX)
    file = next(found, None)  # looked for among those there are: a name may be a way out, or longer than a file's
    return None if file is None else file.read_text(encoding="utf-8")


def _is_packaged(target: str | Path) -> bool:
    if not isinstance(target, str) or "/" in target or os.sep in target or os.path.exists(target):
        return False
    return packaged_text(target.removesuffix(SUFFIX)) is not None and not target.endswith(SUFFIX)


def _hint(name: str) -> str:
    """What a target that cannot be read may have meant: a bare word is a packaged policy's name, or a slip of one."""
    if "/" in name:
        return ""
    near = nearest(name, packaged_names())
    if near:
        return f"; did you mean the packaged policy '{near}'?"
    return "" if name.endswith(SUFFIX) else f"; the packaged policies are {', '.join(packaged_names())}"

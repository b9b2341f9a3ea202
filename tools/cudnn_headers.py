"""Reads cuDNN's C headers: prototypes, enumerators and the release that each says it came with.

This is no C compiler. It knows what these headers are made of (comments, preprocessor lines, typedefs, enums and
prototypes, all in plain C) and raises HeaderError at anything else, so that nothing is passed over in silence.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FAMILIES = ("graph", "ops", "cnn", "adv", "subquadratic_ops", "gnn_ops")
"""cudnn_<family>.h, in the order in which cudnn.h includes them. Older releases have fewer."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_SINCE = re.compile(r"@since\s+cuDNN\s+(\d+)\.(\d+)\.(\d+)")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_CPLUSPLUS = re.compile(r"^[ \t]*#if defined\(__cplusplus\)\n.*?^[ \t]*#endif[^\n]*", re.MULTILINE | re.DOTALL)
_DEFINE = re.compile(r"^#define (CUDNN_MAJOR|CUDNN_MINOR|CUDNN_PATCHLEVEL) (\d+)$", re.MULTILINE)
_MACROS = re.compile(r"\b(CUDNN_DEPRECATED_ENUM|CUDNN_DEPRECATED|CUDNNWINAPI)\b")
_ENUM = re.compile(r"typedef\s+enum\s*\w*\s*\{(?P<body>.*)\}\s*(?P<name>\w+)$", re.DOTALL)
_TYPEDEF = re.compile(
    r"typedef\s+(?:struct\s+\w+\s*(?P<star>\*?)\s*(?P<name>\w+)|struct\s*\w*\s*\{.*\}\s*(?P<structure>\w+)"
    r"|void\s*\(\*(?P<function>\w+)\)\(.*\)|(?P<pointed>void)\s*\*\s*(?P<pointer>\w+))$",
    re.DOTALL,
)
_FORWARD = re.compile(r"struct\s+\w+$")
_PROTOTYPE = re.compile(r"(?P<returns>[\w\s*]+?[\s*])(?P<name>cudnn\w+)\s*\((?P<arguments>.*)\)$", re.DOTALL)
_ARGUMENT = re.compile(r"(?P<type>.*?[\s*])(?P<name>\w+)\s*(?P<array>(?:\[[^\]]*\])?)$", re.DOTALL)
_MARK = re.compile(r"\x00(\d+)\x00")


class HeaderError(ValueError):
    """The headers hold something that this reader does not know."""


@dataclass(frozen=True)
class Prototype:
    """One function; types are spelled as `c_type` makes them."""

    returns: str
    arguments: tuple[tuple[str, str], ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Return type, then argument types: what a caller's code depends on."""
        return (self.returns, *(c_type for c_type, _ in self.arguments))


@dataclass
class Headers:
    """What one release declares.

    families: function → header. pointers: typedef names of pointers, functions' included. structs: typedef names of
    structures. since: function or enumerator → version, where the header gives one.
    """

    version: int
    functions: dict[str, Prototype] = field(default_factory=dict)
    families: dict[str, str] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    pointers: set[str] = field(default_factory=set)
    structs: set[str] = field(default_factory=set)
    since: dict[str, int] = field(default_factory=dict)


def read(folder: Path) -> Headers:
    """The headers in a folder. Raises HeaderError, or FileNotFoundError where there are none."""
    headers = Headers(_version(folder / "cudnn_version.h"))
    for family in FAMILIES:
        path = folder / f"cudnn_{family}.h"
        if path.exists():
            _read_header(path, family, headers)
    if not headers.functions or not headers.enums:
        raise HeaderError(f"{folder}: no functions or no enums found")
    return headers


def _version(path: Path) -> int:
    parts = {name: int(number) for name, number in _DEFINE.findall(path.read_text(encoding="utf-8"))}
    if len(parts) != 3:
        raise HeaderError(f"{path}: no CUDNN_MAJOR, CUDNN_MINOR and CUDNN_PATCHLEVEL")
    return parts["CUDNN_MAJOR"] * 10000 + parts["CUDNN_MINOR"] * 100 + parts["CUDNN_PATCHLEVEL"]


def _read_header(path: Path, family: str, headers: Headers) -> None:
    for statement, since in _statements(path.read_text(encoding="utf-8")):
        if match := _ENUM.match(statement):
            headers.enums[match["name"]] = dict(_enumerators(match["body"], since, headers))
        elif match := _TYPEDEF.match(_MARK.sub("", statement)):
            _add_typedef(match, headers)
        elif _FORWARD.match(statement):
            continue
        elif match := _PROTOTYPE.match(_MARK.sub("", statement)):
            headers.functions[match["name"]] = _prototype(match)
            headers.families[match["name"]] = family
            if since is not None:
                headers.since[match["name"]] = since
        else:
            raise HeaderError(f"{path}: cannot read: {statement[:200]!r}")


def _add_typedef(match: re.Match[str], headers: Headers) -> None:
    name = match["name"] or match["structure"] or match["function"] or match["pointer"]
    is_structure = match["structure"] is not None or match["star"] == ""
    (headers.structs if is_structure else headers.pointers).add(name)


def _statements(text: str) -> Iterator[tuple[str, int | None]]:
    """Declarations without comments, macros and preprocessor lines, and the @since of the comment before each.

    Within a declaration, a comment with @since leaves its version as a mark, for the enumerator it stands at.
    """
    text = _DIRECTIVE.sub("", _CPLUSPLUS.sub("", _COMMENT.sub(_since_mark, text)))
    text = _MACROS.sub("", text)
    for piece in _split(text, ";"):
        leading = re.match(rf"(?:\s|{_MARK.pattern})*", piece)
        marks = _MARK.findall(leading.group()) if leading else []
        statement = piece[leading.end() if leading else 0 :].strip()
        if statement:
            yield statement, int(marks[-1]) if marks else None


def _since_mark(comment: re.Match[str]) -> str:
    found = _SINCE.search(comment.group())
    # A file's own comment says when the file came, not the first declaration in it.
    if found is None or "@file" in comment.group():
        return " "
    major, minor, patch = map(int, found.groups())
    return f"\x00{major * 10000 + minor * 100 + patch}\x00"


def _split(text: str, separator: str) -> Iterator[str]:
    """Pieces between separators that stand outside of brackets."""
    depth = start = 0
    for index, character in enumerate(text):
        depth += (character in "({[") - (character in ")}]")
        if depth < 0:
            raise HeaderError(f"unbalanced brackets: {text[max(0, index - 100) : index + 1]!r}")
        if character == separator and not depth:
            yield text[start:index]
            start = index + 1
    if depth:
        raise HeaderError(f"unbalanced brackets: {text[start : start + 100]!r}")
    yield text[start:]


def _enumerators(body: str, enum_since: int | None, headers: Headers) -> Iterator[tuple[str, int]]:
    """Names with values. An enumerator's comment stands behind the comma that ends it, else its enum's counts."""
    known: dict[str, int] = {}
    following = 0
    pieces = list(_split(body, ","))
    for index, piece in enumerate(pieces):
        text = re.sub(r"^(?:\s|\x00\d+\x00)*", "", piece)
        text = _MARK.sub(" ", text).strip()
        if not text:
            continue
        name, _, expression = (part.strip() for part in text.partition("="))
        if not re.fullmatch(r"CUDNN_\w+", name):
            raise HeaderError(f"cannot read the enumerator {text!r}")
        known[name] = _value(expression, known, headers) if expression else following
        following = known[name] + 1
        since = _enumerator_since(piece, pieces[index + 1] if index + 1 < len(pieces) else "") or enum_since
        if since is not None:
            headers.since[name] = since
        yield name, known[name]


def _enumerator_since(piece: str, after: str) -> int | None:
    behind = re.match(r"[ \t]*\x00(\d+)\x00", after) or re.search(r"\x00(\d+)\x00\s*$", piece)
    return int(behind[1]) if behind else None


_OPERATORS = {ast.LShift: operator.lshift, ast.BitOr: operator.or_, ast.Add: operator.add, ast.Sub: operator.sub}


def _value(expression: str, known: dict[str, int], headers: Headers) -> int:
    names = {name: value for enum in headers.enums.values() for name, value in enum.items()} | known

    def evaluate(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -evaluate(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](evaluate(left), evaluate(right))
        raise HeaderError(f"cannot evaluate {expression!r}")

    return evaluate(ast.parse(re.sub(r"\b(\d\w*?)[uU]\b", r"\1", expression), mode="eval").body)


def _prototype(match: re.Match[str]) -> Prototype:
    arguments = match["arguments"].strip()
    pieces = [] if arguments in ("", "void") else [piece.strip() for piece in _split(arguments, ",")]
    return Prototype(c_type(match["returns"]), tuple(_argument(piece) for piece in pieces))


def _argument(text: str) -> tuple[str, str]:
    match = _ARGUMENT.match(text)
    if match is None:
        raise HeaderError(f"cannot read the argument {text!r}")
    return c_type(match["type"] + ("*" if match["array"] else "")), match["name"]


def c_type(text: str) -> str:
    """One spelling: `const float *`, `void **`, `int`.

    A `const` of the argument itself, not of what it points to, is no part of a function's type in C, and is left out.
    """
    words = " ".join(re.sub(r"\*", " * ", text).split())
    pointed, star, own = words.rpartition("*")
    if star:
        return pointed.replace("* ", "*") + star + own.replace("const", "").strip()
    return " ".join(word for word in words.split() if word != "const")

"""Shell text to commands: words with their lines, variables put in where the file sets them, once. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from advisor.check.values import UNKNOWN, Lost, Node

MAX_WORDS = 20_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "(", ")", "case", "esac"}
)


@dataclass(slots=True)
class Word:
    """One word before variables are put in: pieces of text, and variables with whether they were quoted."""

    line: int
    column: int
    start: int
    end: int = 0
    pieces: list[tuple[str, str, bool]] = field(default_factory=list)  # kind (text, name, lost), text, quoted

    @property
    def bare(self) -> str | None:
        """The text, when it is nothing but text."""
        return (
            "".join(text for _, text, _ in self.pieces) if all(kind == "text" for kind, _, _ in self.pieces) else None
        )


@dataclass(frozen=True, slots=True)
class Command:
    """One command's words after variables were put in, with what was set before it and in front of it."""

    words: tuple[Node, ...]
    environment: dict[str, Node]
    folder: str | None = None


def statements(text: str) -> list[list[Word]]:
    """The commands of a shell text as words. Comments and here-documents are left out; quotes are taken off."""
    return _Lexer(text).statements()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.begin = 0
        self.found: list[list[Word]] = [[]]
        self.word: Word | None = None
        self.heredocs: list[str] = []
        self.array = False

    def statements(self) -> list[list[Word]]:
        text, size = self.text, len(self.text)
        total = 0
        while self.at < size and total + len(self.found[-1]) < MAX_WORDS:
            sign = text[self.at]
            if sign == "\\" and self.at + 1 < size:
                following = text[self.at + 1]
                if following in "\r\n":
                    self.end_word()
                    self.at += 3 if text.startswith("\r\n", self.at + 1) else 2
                    self.newline()
                else:
                    self.add("text", following, True)
                    self.at += 2
            elif sign in "\"'":
                self.quoted(sign)
            elif sign == "$":
                self.variable(False)
            elif sign == "`":
                self.until("`")
                self.add("lost", "", False)
            elif sign == "#" and self.word is None:
                end = text.find("\n", self.at)
                self.at = size if end < 0 else end
            elif sign == "\n":
                self.at += 1
                if self.array:
                    self.end_word()
                    self.newline()
                else:
                    total += len(self.found[-1])
                    self.end_command()
                    self.newline()
                    self.skip_heredocs()
            elif sign in " \t\r":
                self.end_word()
                self.at += 1
            elif sign == "(" and self.word is not None and self.word.bare is not None and self.word.bare.endswith("="):
                self.array = True
                self.add("text", "\0", False)  # marks an array's value
                self.end_word()
                self.at += 1
            elif sign == ")" and self.array:
                self.array = False
                self.end_command()
                self.at += 1
            elif sign in ";&|()":
                if sign == "&" and (text.startswith("&>", self.at) or text[self.at - 1 : self.at] == ">"):
                    self.add("text", sign, False)
                else:
                    self.end_command()
                self.at += 1
            elif sign == "<" and (match := _HEREDOC.match(text, self.at)) and not text.startswith("<<<", self.at):
                self.heredocs.append(match.group(2))
                self.at = match.end()
            else:
                self.add("text", sign, False)
                self.at += 1
        self.end_command()
        return [command for command in self.found if command]

    def newline(self) -> None:
        self.line += 1
        self.begin = self.at

    def add(self, kind: str, text: str, quoted: bool) -> None:
        if self.word is None:
            self.word = Word(self.line, self.at - self.begin + 1, self.at)
        self.word.pieces.append((kind, text, quoted))

    def end_word(self) -> None:
        if self.word is not None:
            self.word.end = self.at
            self.found[-1].append(self.word)
            self.word = None

    def end_command(self) -> None:
        self.end_word()
        if self.found[-1]:
            self.found.append([])

    def quoted(self, sign: str) -> None:
        self.add("text", "", True)
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != sign:
            here = self.text[self.at]
            if here == "\n":
                self.add("text", here, True)
                self.at += 1
                self.newline()
            elif sign == '"' and here == "$":
                self.variable(True)
            elif sign == '"' and here == "\\" and self.at + 1 < len(self.text):
                if self.text[self.at + 1] == "\n":
                    self.at += 2
                    self.newline()
                else:
                    self.add("text", self.text[self.at + 1], True)
                    self.at += 2
            else:
                self.add("text", here, True)
                self.at += 1
        self.at += 1

    def variable(self, quoted: bool) -> None:
        text = self.text
        if text.startswith("${", self.at):
            end = text.find("}", self.at)
            inner = text[self.at + 2 : end] if end >= 0 else ""
            self.at = end + 1 if end >= 0 else len(text)
            self.add("name", inner, quoted)
        elif text.startswith("$(", self.at):
            depth, start = 0, self.at
            while self.at < len(text) and self.at - start < 5000:
                depth += {"(": 1, ")": -1}.get(text[self.at], 0)
                if text[self.at] == "\n":
                    self.line, self.begin = self.line + 1, self.at + 1
                self.at += 1
                if depth == 0 and self.at > start + 1:
                    break
            self.add("lost", "", quoted)
        else:
            match = _NAME.match(text, self.at + 1)
            self.at = match.end() if match else self.at + 2
            self.add("name" if match else "lost", match.group() if match else "", quoted)

    def until(self, sign: str) -> None:
        end = self.text.find(sign, self.at + 1)
        end = len(self.text) - 1 if end < 0 else end
        lines = self.text.count("\n", self.at, end)
        if lines:
            self.line += lines
            self.begin = self.text.rfind("\n", self.at, end) + 1
        self.at = end + 1

    def skip_heredocs(self) -> None:
        for mark in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end].strip()
                self.at = end + 1
                self.newline()
                if line == mark:
                    break
        self.heredocs.clear()


def commands(text: str, path: str, lines: Sequence[int] | None = None) -> Iterator[Command]:
    """Commands in order, with variables put in. One that is set twice, or by a loop, is unknown from then on."""
    variables: dict[str, tuple[Node, ...]] = {}
    exported: dict[str, Node] = {}
    seen: dict[str, int] = {}
    folder: str | None = None
    looped: set[str] = set()
    parsed = statements(text)
    for command in parsed:
        for word in command:
            match = _ASSIGN.match(word.bare or "".join(t for k, t, _ in word.pieces if k == "text"))
            if match:
                seen[match.group(1)] = seen.get(match.group(1), 0) + 1
        if command[0].bare in ("for", "read", "select") and len(command) > 1:
            looped.add(command[1].bare or "")
    for command in parsed:
        words = list(command)
        while words and words[0].bare in _KEYWORDS:
            words.pop(0)
        if not words or words[0].bare in ("for", "read", "select"):
            continue
        own: dict[str, Node] = {}
        export = words[0].bare in ("export", "declare", "local", "readonly", "set")
        if export:
            words.pop(0)
        while words and (name := _assigned(words[0])):
            value = _value(words, variables, path, lines)
            again = seen.get(name, 0) > 1 and variables.get(name, value) != value
            kept = tuple(replace(node, value=UNKNOWN) for node in value) if again or name in looped else value
            variables[name] = kept
            own[name] = kept[0] if kept else Node("", path, words[0].line)
            words.pop(0)
        if not words and not export:
            continue
        if export:
            exported.update(own)
            for word in words:
                if word.bare in variables and variables[word.bare or ""]:
                    exported[word.bare or ""] = variables[word.bare or ""][0]
            continue
        filled = [node for word in words for node in _filled(word, variables, path, lines)]
        if filled and filled[0].value == "cd" and len(filled) == 2:
            folder = filled[1].value if isinstance(filled[1].value, str) else None
        yield Command(tuple(filled), {**exported, **own}, folder)


def _assigned(word: Word) -> str | None:
    first = "".join(text for kind, text, quoted in word.pieces[:200] if kind == "text" and not quoted)
    match = _ASSIGN.match(first)
    return match.group(1) if match and word.pieces[0][0] == "text" else None


def _value(
    words: list[Word], variables: dict[str, tuple[Node, ...]], path: str, lines: Sequence[int] | None
) -> tuple[Node, ...]:
    """What an assignment gives: one text, or the words of an array, which are taken off ``words``."""
    first = words[0]
    if "\0" in (first.bare or ""):
        rest = words[1:]
        del words[1:]
        return tuple(node for word in rest for node in _filled(word, variables, path, lines))
    cut, plus, pieces = 0, False, []
    for kind, text, quoted in first.pieces:
        if kind == "text" and not cut and not quoted:
            plus = plus or text == "+"
            if text == "=":
                cut = 1
            continue
        pieces.append((kind, text, True))
    if plus:
        return (Node(UNKNOWN, path, first.line),)
    return tuple(_filled(Word(first.line, first.column, first.start, first.end, pieces), variables, path, lines))


def _filled(word: Word, variables: dict[str, tuple[Node, ...]], path: str, lines: Sequence[int] | None) -> list[Node]:
    """The word, or words, after variables were put in. An array, or an unquoted variable with blanks, gives several."""
    line = lines[word.line - 1] if lines is not None and 0 < word.line <= len(lines) else word.line
    start, end = (word.start, word.end) if lines is None else (-1, -1)
    place = Node(UNKNOWN, path, line, word.column, start, end)
    if len(word.pieces) <= 2 and any(kind == "name" for kind, _, _ in word.pieces):
        names = [(text, quoted) for kind, text, quoted in word.pieces if kind == "name"]
        alone = len(names) == 1 and all(not text for kind, text, _ in word.pieces if kind == "text")
        name = re.sub(r"\[[@*]\]$", "", names[0][0])
        found = variables.get(name)
        if alone and found is not None:
            if name != names[0][0]:
                return [replace(node, path=path) for node in found]
            text = found[0].value if len(found) == 1 else UNKNOWN
            if not names[0][1] and isinstance(text, str) and (len(text.split()) != 1):
                return [replace(place, value=part, start=-1, end=-1) for part in text.split()]
    text, prefix = "", None
    for kind, piece, _ in word.pieces:
        value: object = piece if kind == "text" else _named(piece, variables) if kind == "name" else UNKNOWN
        if not isinstance(value, str) or len(text) + len(value) > 10_000:
            prefix, text = text if prefix is None else prefix, ""
        else:
            text += value
    return [replace(place, value=text if prefix is None else Lost(prefix, text))]


def _named(inner: str, variables: dict[str, tuple[Node, ...]]) -> object:
    """``NAME`` or ``NAME:-default``; a default counts only for a name that the file does not set."""
    name, mark, default = inner.partition(":-")
    if not mark:
        name, mark, default = inner.partition("-") if _NAME.fullmatch(inner.partition("-")[0]) else (inner, "", "")
    found = variables.get(name)
    if found is not None:
        return found[0].value if len(found) == 1 else UNKNOWN
    return default.strip("\"'") if mark and "$" not in default else UNKNOWN

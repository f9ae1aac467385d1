# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of the documents, and the commands in them."""

import dataclasses
import pathlib
import re

# What a block can be: commands; commands after "$ " with what they print; what nobody types; formats.
COMMANDS = {"sh", "console"}
LANGUAGES = COMMANDS | {"text", "yaml", "toml", "promql"}


@dataclasses.dataclass(frozen=True)
class Block:
    document: str
    line: int  # of its first line of text
    language: str
    text: str

    @property
    def where(self):
        return f"{self.document}:{self.line}"

    def Commands(self):
        """What a reader types, one command each, continued lines joined and comments taken off."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        commands = [re.sub(r"\s+", " ", re.sub(r"(^|\s)#.*", "", line)).strip() for line in lines]
        return [command for command in commands if command]


def Documents(root):
    """Every document of the repository: paths relative to root."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("tests/**/*.md")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def Blocks(root, document):
    """(blocks, what is wrong with how blocks are written)"""
    blocks, wrong = [], []
    language, first, lines = None, 0, []
    before = ""
    for number, line in enumerate((root / document).read_text().splitlines(), 1):
        fence = re.match(r"\s*```(.*)$", line)
        if fence and language is None:
            language, first, lines = fence[1].strip(), number + 1, []
            if language not in LANGUAGES:
                wrong.append(f"{document}:{number}: a block says what it is: ```{' or ```'.join(sorted(LANGUAGES))}")
        elif fence:
            blocks.append(Block(document, first, language, "\n".join(lines)))
            language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("    ") and not before.strip() and not IsInList(root / document, number):
            wrong.append(f"{document}:{number}: an indented block does not say what it is: fence it")
        before = line
    if language is not None:
        wrong.append(f"{document}:{first - 1}: this block does not end")
    return blocks, wrong


def IsInList(path, number):
    """Whether what is indented at a line goes on with a list's entry."""
    for line in reversed(path.read_text().splitlines()[:number - 1]):
        if line and not line.startswith(" "):
            return bool(re.match(r"([-*]|\d+\.) ", line))
    return False

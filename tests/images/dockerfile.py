# SPDX-License-Identifier: Apache-2.0
"""What a Dockerfile says: its stages and their instructions. Knows what ours uses, no heredocs and no escape directive."""

import dataclasses
import re
import shlex


@dataclasses.dataclass
class Stage:
    name: str  # empty: none
    base: str
    instructions: list  # (name, rest as text, continued lines joined)

    def All(self, instruction):
        return [rest for name, rest in self.instructions if name == instruction]


def Parse(text):
    """The stages, in order."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)  # comments, also between continued lines
    text = re.sub(r"\\\n", " ", text)
    stages = []
    for line in text.splitlines():
        if not line.strip():
            continue
        instruction, _, rest = line.strip().partition(" ")
        instruction = instruction.upper()
        if instruction == "FROM":
            base, name = re.fullmatch(r"(\S+)(?:\s+[Aa][Ss]\s+(\S+))?", rest.strip()).groups()
            stages.append(Stage(name or "", base, []))
        elif stages:
            stages[-1].instructions.append((instruction, rest.strip()))
        else:
            raise ValueError(f"{instruction} before the first FROM")
    return stages


def Copy(rest):
    """(the stage or context that a COPY takes from, or None; sources; destination)"""
    words = shlex.split(rest)
    flags = [word for word in words if word.startswith("--")]
    *sources, destination = [word for word in words if not word.startswith("--")]
    origins = [flag.removeprefix("--from=") for flag in flags if flag.startswith("--from=")]
    return origins[0] if origins else None, sources, destination


def Commands(rest):
    """The commands of a RUN, as lists of words. What ends a command in a shell ends one here."""
    lexer = shlex.shlex(rest, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands = [[]]
    for word in lexer:
        if re.fullmatch(r"[&|;()<>]+", word):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


def Contexts(stages):
    """What COPY takes from that is no stage: images, and the build contexts that --build-context must name."""
    names = {stage.name for stage in stages}
    return {Copy(rest)[0] for stage in stages for rest in stage.All("COPY")} - names - {None}

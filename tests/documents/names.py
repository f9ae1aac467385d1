#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What comments and documents name exists: files, types, functions, constants, members, flags, variables of the environment.

usage: names.py [--root DIR]

Looked at are the comments of C++ and CUDA sources and what stands between backticks in the pages (*.md), but for
docs/benchmarks/ and CHANGELOG.md, which tell of older versions. A name exists when code says it; a comment proves nothing. Names that
are not ours stand in others_names.txt, which may not name what nobody uses. Exit status 1 and one line per wrong name.
"""

import argparse
import fnmatch
import functools
import io
import pathlib
import re
import sys
import tokenize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "layering"))
import check  # noqa: E402

CPP = {".h", ".cc", ".cu", ".inc", ".def"}
HASH_COMMENTS = {".sh", ".cmake", ".txt", ".yaml", ".yml"}
OTHER_CODE = {".py", ".json", ".proto", ".go", ".map", ".S", ".tpl", ".mod", ".supp", ".toml", ".ptx", ".service"}
NO_SUFFIX = {"Dockerfile", "run", ".clang-tidy", ".clang-format", ".dockerignore", ".editorconfig"}

# They say what does not exist.
NO_WITNESSES = {"tests/documents/others_names.txt", "tests/documents/names_test.py"}

# Code, string and character literals or comments of C++.
CPP_TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")

SUFFIXES = r"\.(?:h|cc|cu|py|sh|md|def|inc|proto|txt|cmake|map|go|supp|yaml|json)\b(?![/*])"
FILE = re.compile(r"(?<![\w./<>{$*-])(?:[\w.-]+/)*[\w-]+" + SUFFIXES)
# Several at once, tests/fuzz/*_fuzz.cc: there must be one.
GLOB = re.compile(r"(?<![\w./<>{$*-])(?:[\w.*-]+/)*[\w-]*\*[\w*-]*" + SUFFIXES)
# A file that the code writes or reads: state, settings.
MADE_FILE = re.compile(r"[\w-]+\.(?:yaml|json)\b")
# What is certainly a name and not a word: kConstant, TwoHumps, cuDoThis, GPULOOM_THIS, CUDA_ERROR_THIS, member_.
NAME = re.compile(
    r"(?<![\w.$%<{/*…-])(?:k[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w*[a-z]\w*|cu[A-Z]\w+|GPULOOM_[A-Z]\w*|CUDA_[A-Z_0-9]+|CU_[A-Z_0-9]+|"
    r"[a-z]+[a-z0-9]*(?:_[a-z0-9]+)*_)(?![\w*…<{-])")
# Between backticks, or with parentheses, other identifiers are names, too.
QUALIFIED = re.compile(r"(?<![\w:.])[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)+(?![\w*…])")
CALLED = re.compile(r"(?<![\w.:>-])([A-Z]\w+)\(\)")
QUOTED = re.compile(r"`([^`\n]+)`")
QUOTED_ALONE = re.compile(r"[A-Za-z_]\w*(?:\(\))?")


def SplitCpp(text):
    """(code with its literals, [(line, comment)])."""
    comments = []
    line, seen = 1, 0

    def Take(match):
        nonlocal line, seen
        token = match[0]
        if not token.startswith(("//", "/*")):
            return token
        line += text.count("\n", seen, match.start())
        seen = match.start()
        comments.append((line, token))
        return "\n" * token.count("\n") + " "

    return CPP_TOKEN.sub(Take, text), comments


def SplitPython(text):
    """Python without its comments; what stands in strings is code: flags, names that are looked for."""
    try:
        return " ".join(t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type != tokenize.COMMENT)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return text


class Vocabulary:
    """Every word, flag and file name that the repository's code says."""

    def __init__(self, root):
        self.words, self.flags, self.paths, self.outside = set(), set(), set(), set()
        self.comments = []  # (file, line, text)
        for path, name in check.Files(root):
            self.paths.add(name)
            is_code = path.suffix in CPP | HASH_COMMENTS | OTHER_CODE or path.name in NO_SUFFIX
            if not is_code or name in NO_WITNESSES:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            if path.suffix in CPP:
                text, comments = SplitCpp(text)
                self.outside.update(re.findall(r"(?m)^\s*#\s*include <([^>]+)>", text))
                self.comments += [(name, line, comment) for line, comment in comments]
            elif path.suffix == ".py":
                text = SplitPython(text)
            elif path.suffix in HASH_COMMENTS or path.name in NO_SUFFIX:
                text = re.sub(r"(?m)(^|\s)#(?![!{]).*$", "", text)
            self.words.update(WORD.findall(text))
            self.flags.update(FLAG.findall(text))
            self.outside.update(MADE_FILE.findall(text))
        self.names = {path.rsplit("/", 1)[-1] for path in self.paths}

    def HasWord(self, word):
        """As it stands, as the plural of a type, or as the end of one of CUDA's constants (CU_LAUNCH_…_COOPERATIVE)."""
        def Known(word):
            return word in self.words or word in CudaWords()
        return (Known(word) or word.endswith("s") and Known(word[:-1]) or
                word.isupper() and "_" in word and any(other.endswith("_" + word) for other in CudaWords()))

    def HasFile(self, file, beside):
        """A path from the root, from the folder of who names it, the end of one that exists, a system header, or
        a file that the code makes."""
        if "*" in file:
            return any(fnmatch.fnmatchcase(path, pattern) for path in self.paths for pattern in (file, "*/" + file))
        if file in self.names or file in self.paths or file in self.outside:
            return True
        folder = beside.rsplit("/", 1)[0] + "/" if "/" in beside else ""
        return folder + file in self.paths or any(path.endswith("/" + file) for path in self.paths)


@functools.lru_cache(maxsize=None)
def CudaWords(folder="/usr/local/cuda/include"):
    words = set()
    for header in ("cuda.h", "driver_types.h", "cuda_runtime_api.h", "cupti_result.h", "cudaTypedefs.h", "texture_types.h",
                   "vector_types.h", "nvPTXCompiler.h"):
        path = pathlib.Path(folder, header)
        if path.exists():
            words.update(WORD.findall(SplitCpp(path.read_text(errors="replace"))[0]))
    return words


def ReadOthers(path):
    if not path.exists():
        return set()
    return {line.split("#")[0].strip() for line in path.read_text().splitlines()} - {""}


def Named(text, is_quoted):
    """The names in a comment, or in what stood between backticks: (kind, name)."""
    for file in FILE.findall(text) + GLOB.findall(text):
        yield "file", file
    rest = FILE.sub(" ", text)
    for qualified in QUALIFIED.findall(rest):
        for part in re.split(r"::~?", qualified):
            yield "word", part
    rest = QUALIFIED.sub(" ", rest)
    for name in NAME.findall(rest) + CALLED.findall(rest):
        yield "word", name
    if is_quoted:
        for flag in FLAG.findall(text):
            yield "flag", flag
        alone = QUOTED_ALONE.fullmatch(text.strip())
        if alone:
            yield "word", text.strip().removesuffix("()")


def Check(root):
    vocabulary = Vocabulary(root)
    others = ReadOthers(root / "tests/documents/others_names.txt")
    used, wrong = set(), []

    def Look(where, beside, text, is_quoted, kinds=frozenset(("file", "flag", "word"))):
        for kind, name in Named(text, is_quoted):
            if kind not in kinds:
                continue
            exists = {"file": lambda: vocabulary.HasFile(name, beside), "flag": lambda: name in vocabulary.flags,
                      "word": lambda: vocabulary.HasWord(name)}[kind]()
            if exists:
                continue
            if name in others:
                used.add(name)
                continue
            offence = f"{where}: there is no {name}"
            if offence not in wrong:
                wrong.append(offence)

    for name, line, comment in vocabulary.comments:
        for offset, text in enumerate(comment.split("\n")):
            Look(f"{name}:{line + offset}", name, QUOTED.sub(" ", text), False)
            for quoted in QUOTED.findall(text):
                Look(f"{name}:{line + offset}", name, quoted, True)
    # docs/benchmarks.md names measurements, whose names are put together: only its files and flags are looked for.
    documents = [path for path in vocabulary.paths if path.endswith(".md") and not path.startswith(("docs/benchmarks/", "CHANGELOG.md"))]
    for document in sorted(documents):
        for number, line in enumerate((root / document).read_text().splitlines(), 1):
            for quoted in QUOTED.findall(line):
                kinds = {"file", "flag"} if document == "docs/benchmarks.md" else {"file", "flag", "word"}
                Look(f"{document}:{number}", document, quoted, True, kinds)
    wrong += [f"tests/documents/others_names.txt: nobody names {name}" for name in sorted(others - used)]
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    wrong = Check(parser.parse_args().root)
    print("\n".join(wrong + [f"names: {len(wrong)} that do not exist"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes page.html as C++, with the one Content-Security-Policy under which it runs: no other script or style than its own,
which are known by their hashes, nothing from elsewhere, and no text that becomes markup.

usage: embed_page.py page.html page.cc
"""

import base64
import hashlib
import pathlib
import re
import sys

DELIMITER = "page"
PIECE_BYTES = 8000  # compilers need not take longer literals


def Hash(page, element):
    """The one inline element of this name, as the policy names it."""
    (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def Literal(text):
    pieces = [text[i:i + PIECE_BYTES] for i in range(0, len(text), PIECE_BYTES)]
    assert f'){DELIMITER}"' not in text
    return "\n".join(f'R"{DELIMITER}({piece}){DELIMITER}"' for piece in pieces)


def main():
    page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    assert not re.search(r"""\s(on\w+|style|src|href)=["']""", page), "nothing inline but one style and one script"
    policy = (f"default-src 'none'; script-src {Hash(page, 'script')}; style-src {Hash(page, 'style')}; connect-src 'self'; "
              "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
    pathlib.Path(sys.argv[2]).write_text(
        "// Made by agent/metrics/embed_page.py.\n"
        '#include "agent/metrics/page.h"\n\n'
        "namespace gpuloom {\n\n"
        f"const char kPage[] =\n{Literal(page)};\n\n"
        f'const char kPagePolicy[] =\n    "{policy}";\n\n'
        "}  // namespace gpuloom\n", encoding="utf-8")


if __name__ == "__main__":
    main()

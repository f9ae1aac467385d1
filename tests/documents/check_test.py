#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What check.py takes for a link that leads nowhere, for a row that does not end, and for a part without a row."""

import contextlib
import io
import pathlib
import tempfile
import unittest
import unittest.mock

import check

TEXT = """# The `gpuloom` command
## Who, what & why?
### Upgrading
## Upgrading
## [Linked](x.md) words
```sh
# no heading
```
"""


class Links(unittest.TestCase):
    def test_anchors_are_those_that_github_makes(self):
        self.assertEqual(check.Anchors(TEXT), {"the-gpuloom-command", "who-what--why", "upgrading", "upgrading-1", "linked-words"})

    def test_links_are_found_with_their_anchors(self):
        self.assertEqual(check.LINK.findall("[a](b.md#c), [d](#e), [f](g.md), [h](https://i/j.md#k), [l](mailto:m@n.o)"),
                         [("b.md", "c"), ("", "e"), ("g.md", "")])

    def test_a_link_leads_to_a_heading(self):
        with tempfile.TemporaryDirectory() as folder:
            document = pathlib.Path(folder, "a.md")
            document.write_text(TEXT)
            pathlib.Path(folder, "b.md").write_text("# Other\n")
            for name, anchor, is_dead in [("b.md", "", False), ("b.md", "other", False), ("b.md", "upgrading", True), ("", "upgrading-1", False),
                                          ("", "no-heading", True), ("c.md", "", True), (".", "", False)]:
                self.assertEqual(check.DeadLink(document, name, anchor), is_dead, (name, anchor))


class Rows(unittest.TestCase):
    def test_a_row_ends_where_its_line_does(self):
        self.assertEqual(check.BrokenRows("| a | b |\n| --- | --- |\n| c | d\ne |\n| f | g | \n  | h | i\n"), [3, 6])

    def test_code_has_no_rows(self):
        self.assertEqual(check.BrokenRows("```text\n| a\n```\n| b\n"), [4])

    def test_every_document_is_looked_at(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs/design").mkdir(parents=True)
            (root / "docs/design/a.md").write_text("| a | b\nc |\n")
            said = io.StringIO()
            with unittest.mock.patch.object(check, "ROOT", root), contextlib.redirect_stdout(said):
                self.assertEqual(check.main(), 1)
            self.assertIn("docs/design/a.md:1: the row of a table", said.getvalue())


class Parts(unittest.TestCase):
    def Wrong(self, header, page):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (("agent/executor/event/events.h", header), ("docs/design/executor-parts.md", page)):
                (root / name).parent.mkdir(parents=True)
                (root / name).write_text(text)
            with unittest.mock.patch.object(check, "ROOT", root):
                return check.WrongParts()

    def test_every_part_has_a_row(self):
        header = "class Events final : public Part {\nclass Links : public Part, public StreamSink {\nclass Other : public Partial {\n"
        page = "| `Port` | |\n\n## The parts\n\n| part | owns |\n| --- | --- |\n| `Events`, `Links` | `Other` |\n\n## Life\n| `Port` | |\n"
        self.assertEqual([], self.Wrong(header, page))
        self.assertEqual(["docs/design/executor-parts.md: the part Links has no row"], self.Wrong(header, page.replace(", `Links`", "")))
        self.assertEqual(["docs/design/executor-parts.md: Links is no part"], self.Wrong(header.replace("class Links", "struct Links"), page))


if __name__ == "__main__":
    unittest.main()

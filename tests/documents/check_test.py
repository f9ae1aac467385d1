#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What check.py takes for a link that leads nowhere."""

import pathlib
import tempfile
import unittest

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


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The pages that tools/dev/docs gives to mkdocs."""

import os
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.abspath("tools/dev/site"))

import references  # pylint: disable=wrong-import-position
import stage  # pylint: disable=wrong-import-position

FILES = [
    "README.md",
    "dcp/README.md",
    "dcp/io/lane.h",
    "docs/scale.png",
    ".bazelrc",
]


def staged(text):
    return stage.staged_page(textwrap.dedent(text), lambda link: link)


class Pages(unittest.TestCase):
    def target(self, page, link):
        self.links = stage.Links(FILES)
        return self.links.target(page, link)

    def test_link_to_a_page_stays(self):
        self.assertEqual(
            self.target("README.md", "dcp/README.md#x"), "dcp/README.md#x"
        )

    def test_link_to_a_source_leads_to_its_copy(self):
        self.assertEqual(
            self.target("dcp/README.md", "io/lane.h"), "io/lane.h.txt"
        )
        self.assertEqual(self.links.sources, {"dcp/io/lane.h"})
        self.assertEqual(self.target("README.md", ".bazelrc"), "bazelrc.txt")

    def test_link_to_a_folder_leads_to_its_page_or_a_list(self):
        self.assertEqual(self.target("README.md", "dcp"), "dcp/README.md")
        self.assertEqual(self.target("dcp/README.md", "io/"), "io/files.md")
        self.assertEqual(self.links.folders, {"dcp/io"})
        self.assertIn("`lane.h`", stage.listing("dcp/io", FILES))

    def test_picture_stays_a_picture(self):
        self.assertEqual(
            self.target("README.md", "docs/scale.png"), "docs/scale.png"
        )

    def test_broken_link_stays_for_mkdocs_to_report(self):
        self.assertEqual(self.target("README.md", "dcp/none.h"), "dcp/none.h")

    def test_links_in_code_stay(self):
        page = "[a](b)\n```\n[a](b)\n```\n[a](b)"
        self.assertEqual(
            stage.staged_page(page, lambda link: "c"),
            "[a](c)\n```\n[a](b)\n```\n[a](c)",
        )

    def test_lists_are_indented_by_four_and_set_apart(self):
        self.assertEqual(
            staged("""\
                Text:
                - one
                  goes on
                  - inner

                  ```
                  code
                    more
                  ```
                - two
                1. three

                   four
                """),
            textwrap.dedent("""\
                Text:

                - one
                    goes on
                    - inner

                    ```
                    code
                      more
                    ```

                - two
                1. three

                    four
                """),
        )

    def test_pages_that_the_config_does_not_name_are_inside(self):
        config = stage.make_nav(
            "nav:\n- Home: README.md\n- Python:\n- Reference:\n",
            [
                "README.md",
                "dcp/README.md",
                "docs/decisions/0001-a.md",
                "reference/proto/a.proto.md",
                "reference/python/tessera.md",
            ],
        )
        self.assertIn('- Inside:\n  - "dcp": dcp/README.md\n', config)
        self.assertIn("- Decisions:\n  - docs/decisions/0001-a.md\n", config)
        self.assertIn('- Reference:\n  - "a.proto": reference/', config)
        self.assertIn('- Python:\n  - "tessera": reference/python', config)


class References(unittest.TestCase):
    def test_proto_shows_comments_and_sources(self):
        page = references.proto_page(
            "a.proto",
            textwrap.dedent("""\
            // What this is.

            syntax = "proto3";

            // Errors:
            //
            //   NOT_FOUND  nothing is there
            //
            // and no others.
            service Boxes {
              // Finds one.
              rpc Find(FindRequest) returns (Box);
            }

            message FindRequest {}
            """),
        )
        self.assertEqual(
            page,
            textwrap.dedent("""\
            # a.proto

            What this is.

            ## Boxes

            Errors:


            ```
            NOT_FOUND  nothing is there
            ```

            and no others.

            ```proto
            service Boxes {
              // Finds one.
              rpc Find(FindRequest) returns (Box);
            }
            ```

            ## FindRequest



            ```proto
            message FindRequest {}
            ```
            """),
        )

    def test_python_follows_imports_to_what_is_public(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "tessera"))
            for name, text in (
                (
                    "__init__.py",
                    '''
                        """Boxes."""
                        from tessera._box import Box
                        from tessera._version import __version__
                        __all__ = ["Box", "__version__"]
                        ''',
                ),
                (
                    "_box.py",
                    '''
                        class Box(dict):
                            """A box.

                            Args:
                              size: its size,
                                in bytes.

                            Use it:

                                Box(3)
                            """
                            def __init__(self, size: int = 1): ...
                            def open(self) -> bool:
                                """Whether it opens."""
                            def _hide(self): ...
                        ''',
                ),
            ):
                with open(
                    os.path.join(root, "tessera", name), "w", encoding="utf-8"
                ) as file:
                    file.write(textwrap.dedent(text))
            page = references.python_page(references.Package(root), "tessera")
        for text in (
            "# tessera\n\nBoxes.",
            "class Box(dict)\n__init__(self, size: int=1)",
            "**Args**\n\n- `size`: its size,\n  in bytes.",
            "```\nBox(3)\n```",
            "### Box.open\n\n```python\nopen(self) ->"
            " bool\n```\n\nWhether it opens.",
        ):
            self.assertIn(text, page)
        self.assertNotIn("_hide", page)


if __name__ == "__main__":
    unittest.main()

"""The checks of the pages find what they are for."""

import tempfile
import unittest
from pathlib import Path

import built
import flags
import lists
import pages
import snippets


class Links(unittest.TestCase):
    def problems(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name).resolve()
            (root / "docs").mkdir()
            (root / "docs" / "other.md").write_text("# Other\n\n## Two words\n\n## Two words\n")
            (root / "docs" / "page.md").write_text(text)
            return pages.problems(root / "docs" / "page.md", root)

    def test_a_page_whose_links_lead_somewhere_is_fine(self):
        fine = "# Here\n[a](other.md) [b](other.md#two-words-1) [c](#here) ![d](other.md) [e](https://example.com/x_(y)) [f](..)\n"
        self.assertEqual(self.problems(fine), [])

    def test_each_kind_of_broken_link_is_told_with_its_line(self):
        for target, word in (
            ("gone.md", "is not there"),
            ("other.md#three", "no such heading"),
            ("#there", "no such heading"),
            ("/docs/other.md", "slash"),
            ("../../x", "out of the project"),
            ("http://example.com", "https://"),
        ):
            with self.subTest(target):
                (found,) = self.problems(f"# Here\n\n[a]({target})\n")
                self.assertTrue(found.startswith(f"docs/page.md:3: {target}: "), found)
                self.assertIn(word, found)

    def test_pictures_and_links_of_html_are_links(self):
        self.assertEqual(len(self.problems('<img src="gone.svg"> <a href="gone.md">x</a>\n')), 2)

    def test_code_has_no_links(self):
        self.assertEqual(self.problems("`[a](gone)` ``[`b`](gone)``\n\n```md\n[c](gone)\n# No heading\n```\n"), [])

    def test_a_block_without_an_end_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "line 2 has no end"):
            pages.read("text\n```\ncode\n")

    def test_anchors_are_those_of_github(self):
        for heading, anchor in (
            ("HTTPS and names", "https-and-names"),
            ("What `run`, `exec` and `shell` do", "what-run-exec-and-shell-do"),
            ("隔离：能防什么，不能防什么", "隔离能防什么不能防什么"),
            ("A [link](x.md) & more", "a-link--more"),
        ):
            self.assertEqual(pages.slug(heading), anchor)


class Lists(unittest.TestCase):
    def test_what_belongs_to_an_item_is_four_spaces_in(self):
        page = "1. one\n\n   ```sh\n   - x\n   ```\n\n   - a\n     more\n2. two\n\ntext\n- b\n  - c\n"
        wide = "1. one\n\n    ```sh\n    - x\n    ```\n\n    - a\n        more\n\n2. two\n\ntext\n\n- b\n    - c\n"
        self.assertEqual(lists.widened(page), wide)

    def test_all_else_stays_as_it_is(self):
        for page in ("text\n  - x\n", "```\n- a\n  b\n1. c\n   d\n```\n", "- a\n- b\n\n\nafter\n", "    code\n", "in the year\n1995. It\n"):
            self.assertEqual(lists.widened(page), page)


class Site(unittest.TestCase):
    def problems(self, body: str, style: str = "") -> list[str]:
        with tempfile.TemporaryDirectory() as name:
            site = Path(name).resolve()
            (site / "docs").mkdir()
            (site / "index.html").write_text('<h1 id="top">x</h1>')
            (site / "docs" / "page.html").write_text(body)
            (site / "look.css").write_text(style)
            return built.problems(site)

    def test_a_site_whose_links_lead_somewhere_is_fine(self):
        fine = '<link rel="stylesheet" href="../look.css"><h2 id="a">x</h2><a href="..">x</a><a href="../index.html#top">x</a>'
        self.assertEqual(self.problems(fine + '<a href="#a">x</a><a href="https://example.com">x</a>'), [])

    def test_links_that_lead_nowhere_are_told(self):
        for body in ('<a href="gone.html">', '<a href="../index.html#gone">', '<a href="#gone">', '<img src="gone.png">', '<a href="/index.html">'):
            with self.subTest(body):
                self.assertEqual(len(self.problems(body)), 1)

    def test_what_is_loaded_from_elsewhere_is_told(self):
        for body in (
            '<script src="https://example.com/x.js"></script>',
            '<link rel="stylesheet" href="//example.com/x.css">',
            '<link rel="preconnect" href="https://example.com">',
            '<img src="https://example.com/x.png">',
        ):
            with self.subTest(body):
                self.assertIn("loaded from elsewhere", "".join(self.problems(body)))
        self.assertEqual(len(self.problems("", "@font-face { src: url(https://example.com/f.woff) }")), 1)


class Snippets(unittest.TestCase):
    SOURCE = "import x\n\n\ndef f():\n    # why\n    a = 1  # one\n\n    return a\n"

    def test_lines_of_the_file_are_found_however_far_they_are_indented(self):
        self.assertTrue(snippets.is_part("a = 1  # one\nreturn a\n", self.SOURCE))
        self.assertTrue(snippets.is_part("import x\n\ndef f():\n    # why\n", self.SOURCE))

    def test_a_changed_a_missing_and_a_moved_line_are_not(self):
        self.assertFalse(snippets.is_part("a = 2  # one\n", self.SOURCE))
        self.assertFalse(snippets.is_part("# why\nreturn a\n", self.SOURCE))
        self.assertFalse(snippets.is_part("return a\na = 1  # one\n", self.SOURCE))

    def test_only_a_translated_page_may_have_other_comments(self):
        self.assertFalse(snippets.is_part("# 为什么\na = 1  # 一\n", self.SOURCE))
        self.assertTrue(snippets.is_part("# 为什么\na = 1  # 一\n", self.SOURCE, translated=True))
        self.assertFalse(snippets.is_part("# 为什么\na = 2\n", self.SOURCE, translated=True))


class Flags(unittest.TestCase):
    HELP = "Options:\n      --one <X>\n          Text\n\n          [env: SOULBOX_ONE]\n\n      --two\n          [env: SOULBOX_TWO]\n\nExamples:\n  soulbox\n      --one 1\n"

    def problems(self, table: str) -> list[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".md") as page:
            page.write(table)
            page.flush()
            return [each.partition(": ")[2] for each in flags.problems(Path(page.name), self.HELP)]

    def test_a_table_with_all_options_is_fine(self):
        self.assertEqual(self.problems("| `--one`, `--two` | `SOULBOX_ONE`, … | 1 | x |\n"), [])

    def test_missing_unknown_and_wrongly_named_options_are_told(self):
        found = self.problems("| `--one` | `SOULBOX_EINS` | 1 | x |\n| `--three` | `SOULBOX_THREE` | 3 | x |\n")
        self.assertEqual(
            found,
            ["--two has no row", "there is no option --three", "the variable of --one is SOULBOX_ONE, not SOULBOX_EINS"],
        )


if __name__ == "__main__":
    unittest.main()

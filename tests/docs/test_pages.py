"""The project's pages: links lead somewhere, nothing is forgotten, and what is shown is what there is."""

import re
import unittest

import contents
import flags
import pages
import snippets
from pages import PROJECT

READMES = [PROJECT / "README.md", PROJECT / "README.zh-CN.md"]
TUTORIALS = ["plot-data", "agent-builds-a-project", "class-of-submissions", "pause-today"]
CONFIGURATION = [PROJECT / "docs" / "configuration.md", PROJECT / "docs" / "zh" / "configuration.md"]


class Pages(unittest.TestCase):
    maxDiff = None

    def told(self, problems: list[str]) -> None:
        self.assertEqual(problems, [], "\n" + "\n".join(problems))

    def test_every_link_of_every_page_leads_somewhere(self):
        self.assertGreater(sum(len(pages.page(each).links) for each in pages.all_pages()), 400)
        self.told([problem for each in pages.all_pages() for problem in pages.problems(each)])

    def test_every_page_is_in_the_table_of_contents(self):
        self.told([
            f"{each.relative_to(PROJECT)}: add it to docs/README.md (docs/zh/README.md for one in Chinese)"
            for each in contents.forgotten()
        ])  # fmt: skip

    def test_blocks_that_name_a_program_of_the_examples_are_lines_of_it(self):
        shown = [block for each in pages.all_pages() for block in snippets.from_files(each)]
        self.assertGreater(len(shown), 20)
        self.told([problem for each in pages.all_pages() for problem in snippets.problems(each)])

    def test_the_options_of_the_server_are_those_of_its_help(self):
        for page in CONFIGURATION:
            self.told(flags.problems(page, flags.HELP.read_text()))


class Readme(unittest.TestCase):
    def test_it_is_short(self):
        for readme in READMES:
            self.assertLessEqual(len(readme.read_text().splitlines()), 150, readme.name)

    def test_the_first_two_commands_are_the_first_two_blocks(self):
        for readme in READMES:
            first, second = pages.page(readme).blocks[:2]
            self.assertEqual((first.text, second.text), ("./serve\n", "./test\n"), readme.name)

    def test_both_languages_have_the_same_parts(self):
        def parts(readme):
            page = pages.page(readme)
            return [level for level, _ in page.headings], [(each.language, len(each.text.splitlines())) for each in page.blocks]

        self.assertEqual(*map(parts, READMES))

    def test_it_has_a_picture_with_words_for_those_who_do_not_see_it(self):
        for readme in READMES:
            (words,) = re.findall(r"!\[([^\]]+)\]\(docs/images/map[a-z.-]*\.svg\)", readme.read_text())
            self.assertGreater(len(words), 40)

    def test_it_leads_to_the_four_tutorials(self):
        for readme, folder in zip(READMES, ("docs", "docs/zh")):
            linked = {each.target for each in pages.page(readme).links}
            self.assertLessEqual({f"{folder}/tutorials/{each}.md" for each in TUTORIALS}, linked)


class Tutorials(unittest.TestCase):
    def test_each_shows_its_program_in_both_languages(self):
        for name in TUTORIALS:
            program = f"examples/{name.replace('-', '_')}.py"
            shown = []
            for folder in ("docs", "docs/zh"):
                path = PROJECT / folder / "tutorials" / f"{name}.md"
                titles = [block.title for block, _ in snippets.from_files(path)]
                self.assertGreaterEqual(titles.count(program), 3, path)
                shown.append(titles)
                self.assertIn("output", [each.title for each in pages.page(path).blocks], path)
            self.assertEqual(*shown, f"{name}: the languages show other blocks")


if __name__ == "__main__":
    unittest.main()

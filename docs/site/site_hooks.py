"""What MkDocs asks while it builds the site."""

from pages import slug


def anchor(heading: str, _separator: str) -> str:
    """As GitHub has it: the same links work in both places."""
    return slug(heading)


def on_page_context(context, page, config, nav):
    """The words around a page are in its language."""
    chinese = page.file.src_uri.startswith("docs/zh/") or page.file.src_uri == "README.zh-CN.md"
    config.theme["language"] = "zh" if chinese else "en"
    return context

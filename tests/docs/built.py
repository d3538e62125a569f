"""A built site: every link in it leads somewhere in it, and nothing is loaded from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself. (`a` is what a reader chooses to open.)
LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "video": "src", "audio": "src", "embed": "src"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "prefetch", "modulepreload", "dns-prefetch", "manifest"}


class Document(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, pairs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in pairs}
        self.anchors |= {attributes[each] for each in ("id", "name") if each in attributes}
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag in LOADED and attributes.get(LOADED[tag]):
            self.loads.append(attributes[LOADED[tag]])
        if tag == "link" and set(attributes.get("rel", "").split()) & LOADED_LINKS:
            self.loads.append(attributes.get("href", ""))


def problems(site: Path) -> list[str]:
    documents = {each: Document(each.read_text()) for each in site.rglob("*.html")}
    found = []
    for path, document in documents.items():
        name = path.relative_to(site)
        for target in document.loads:
            if urlsplit(target).scheme not in ("", "data") or target.startswith("//"):
                found.append(f"{name}: is loaded from elsewhere: {target}")
        for target in [*document.links, *document.loads]:
            parts = urlsplit(target)
            if parts.scheme or target.startswith("//"):
                continue
            if parts.path.startswith("/") and path.name != "404.html":
                found.append(f"{name}: {target} begins with a slash: it leads out of a folder")
                continue
            # 404.html is served at any path, and so links from the root.
            file = (path.parent / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if file.is_dir():
                file /= "index.html"
            if not file.is_file():
                found.append(f"{name}: {target} is not there")
            elif parts.fragment and file in documents:
                anchor = unquote(parts.fragment)
                if anchor not in documents[file].anchors and not anchor.startswith("__"):
                    found.append(f"{name}: {target}: there is no such anchor")
    for style in site.rglob("*.css"):
        for url in re.findall(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)", style.read_text()):
            found.append(f"{style.relative_to(site)}: is loaded from elsewhere: {''.join(url)}")
    return sorted(set(found))

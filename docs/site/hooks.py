"""What `mkdocs build` does for this site besides rendering: see mkdocs.yml. With --strict every warning fails the build."""
import html
import logging
import os
import posixpath
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
KATEX = Path("/usr/share/javascript/katex")
API = ROOT / "build" / "site-api"  # Doxygen's output, kept while headers and examples do not change
LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# A paragraph that does not begin with a list item and has one.
TEXT_THEN_LIST = re.compile(r"(?:\A|\n\n)(?! *(?:[-*]|\d+\.) |[|<])(?:.+\n)+?( *(?:[-*]|1\.) .*)")
log = logging.getLogger("mkdocs.calm")


def source_of(path: str) -> Path:
    """The file of a page in `nav`: in docs/, else in the repository."""
    return DOCS / path if (DOCS / path).exists() else ROOT / path


def named_pages(nav) -> list[str]:
    """All paths of pages in `nav`, in order."""
    if isinstance(nav, str):
        return [nav]
    return [path for item in (nav if isinstance(nav, list) else nav.values()) for path in named_pages(item)]


def expanded(nav, named: set[str]):
    """`nav` with each folder replaced by its pages that `named` lacks. A folder's README comes first."""
    if isinstance(nav, dict):
        return {title: expanded(item, named) for title, item in nav.items()}
    if isinstance(nav, str):
        return nav
    pages = []
    for item in nav:
        if isinstance(item, str) and item.endswith("/"):
            folder = source_of(item)
            if not folder.is_dir():
                log.warning(f"nav in mkdocs.yml names the folder {item}, which does not exist: remove it there")
            found = sorted(folder.rglob("*.md"), key=lambda page: (page.parent, page.name != "README.md", page.name))
            pages += [path for page in found if (path := item + page.relative_to(folder).as_posix()) not in named]
        else:
            pages.append(expanded(item, named))
    return pages


def github_anchor(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_config(config):
    if not KATEX.exists():
        log.warning(f"expected KaTeX in {KATEX}, found nothing: install libjs-katex (tests/run tools does)")
    config["nav"] = expanded(config["nav"], set(named_pages(config["nav"])))
    config["mdx_configs"].setdefault("toc", {})["slugify"] = github_anchor
    return config


def build_api() -> dict[Path, str]:
    """Builds the C++ API in API/api if a header or an example is newer. The page of each public header."""
    tags = API / "calm.tag"
    inputs = [*(ROOT / "include").rglob("*"), DOCS / "Doxyfile", DOCS / "example-filter", *(DOCS / "site").glob("api*")]
    inputs += [ROOT / "tests/docs/reference"]
    inputs += [file for folder in ("examples", "tests", "apps") for file in (ROOT / folder).rglob("*.[ch]*")]
    if not tags.exists() or tags.stat().st_mtime < max(file.stat().st_mtime for file in inputs):
        number = int(re.search(r"^#define CALM_VERSION (\d+)$", (ROOT / "include/calm/version.hpp").read_text(), re.MULTILINE)[1])
        version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        if subprocess.run([ROOT / "tests/docs/reference", version, API]).returncode:
            shutil.rmtree(API, ignore_errors=True)
            raise PluginError("expected a C++ reference without warnings: see Doxygen's above")
    return {ROOT / "include" / file.findtext("path") / file.findtext("name"): "api/" + file.findtext("filename")
            for file in xml.parse(tags).iterfind("compound[@kind='file']")}


def on_files(files, config):
    def add(path: str, folder: Path):
        files.append(File(path, str(folder), config["site_dir"], config["use_directory_urls"]))

    for file in list(files):
        if Path(file.abs_src_path).is_relative_to(DOCS) and not file.src_uri.endswith((".md", ".svg", ".png", "site.css", "math.js")):
            files.remove(file)
    pages = [path for path in named_pages(config["nav"]) if path.endswith(".md")]
    for path in pages:
        if pages.count(path) > 1:
            log.warning(f"nav in mkdocs.yml names {path} {pages.count(path)} times, expected once")
        if not (DOCS / path).exists() and (ROOT / path).exists():  # mkdocs reports pages that neither has
            add(path, ROOT)
    for file in files.documentation_pages():
        if file.src_uri not in pages:
            log.warning(f"{file.src_uri} is not in the nav of mkdocs.yml: add it to the section that it belongs to")
    on_files.headers = build_api()
    for file in sorted(API.glob("api/**/*")):
        if file.is_file():
            add(file.relative_to(API).as_posix(), API)
    for name in ["katex.min.css", "katex.min.js", *(f"fonts/{font.name}" for font in (KATEX / "fonts").glob("*.woff2"))]:
        files.append(File(f"katex/{name}", "", config["site_dir"], False))
        files.get_file_from_path(f"katex/{name}").abs_src_path = str(KATEX / name)
    return files


def on_page_markdown(markdown, page, config, files):
    """Links lead to pages of the site, to the API for public headers, and to the source for other files."""
    here = Path(page.file.abs_src_path)
    page.title = page.title.replace("`", "")
    by_source = {Path(file.abs_src_path): file.src_uri for file in files}

    def link(match: re.Match) -> str:
        path, hash_sign, anchor = match[1].partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        target = Path(os.path.normpath(here.parent / path))
        if target in by_source or target / "README.md" in by_source:
            uri = by_source.get(target) or by_source[target / "README.md"]
        elif target in on_files.headers:
            uri = on_files.headers[target]
        elif not target.exists():
            log.warning(f"{here.relative_to(ROOT)} links to {match[1]}, which does not exist")
            return match[0]
        elif config["repo_url"]:
            return f"]({config['repo_url'].rstrip('/')}/blob/main/{target.relative_to(ROOT).as_posix()}{hash_sign}{anchor})"
        else:
            uri = source_page(target, files, config)
        return f"]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri))}{hash_sign}{anchor})"

    # Inside code of a table, GitHub needs the backslash before a bar and does not show it; Python-Markdown shows it.
    def bars(match: re.Match) -> str:
        return match[0].replace(r"\|", "|")

    def text(part: str) -> str:
        for line in TEXT_THEN_LIST.findall(part):
            log.warning(f"{here.relative_to(ROOT)}: expected an empty line before the list that begins with {line!r}")
        # Lists are nested by two columns, as on GitHub; Python-Markdown needs four.
        part = re.sub(r"^( +)(?=\S)", r"\1\1", part, flags=re.MULTILINE)
        return re.sub(r"`[^`\n]*`", bars, LINK.sub(link, part))

    return "".join(part if part.startswith("```") else text(part) for part in FENCE.split(markdown))


def source_page(source: Path, files, config) -> str:
    """The page that shows a source file or lists a folder."""
    name = source.relative_to(ROOT).as_posix()
    page = File(f"source/{name}.html", config["site_dir"], config["site_dir"], False)
    if not files.get_file_from_path(page.src_uri):
        text = "\n".join(sorted(file.name for file in source.iterdir())) if source.is_dir() else source.read_text()
        Path(page.abs_dest_path).parent.mkdir(parents=True, exist_ok=True)
        Path(page.abs_dest_path).write_text(
            '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f'<meta name="color-scheme" content="light dark"><title>{name}</title><pre>{html.escape(text)}</pre></html>\n')
        files.append(page)
    return page.src_uri


class Page(HTMLParser):
    """Collects links and ids of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links = {""}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if name in ("href", "src") and value and not re.match(r"[a-z]+:|//", value):
                self.links.append(value)


def on_post_build(config):
    site = Path(config["site_dir"])
    pages = {}

    def page(file: Path) -> Page:
        if file not in pages:
            pages[file] = Page(file.read_text())
        return pages[file]

    for file in sorted(site.rglob("*.html")):
        name = file.relative_to(site)
        if name.parts[0] in ("api", "source") or name.name == "404.html":
            continue
        for url in sorted(set(page(file).links)):
            path, _, anchor = unquote(url).partition("#")
            target = Path(os.path.normpath(file.parent / path.partition("?")[0])) if path else file
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                log.warning(f"{name} links to {url}, which the site lacks")
            elif target.suffix == ".html" and anchor not in page(target).ids:
                log.warning(f"{name} links to {url}, but there is no heading #{anchor}")

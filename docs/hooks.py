"""Site pages that live elsewhere in the repository: README, DESIGN, CONTRIBUTING, and files that pages link to."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from draftproof.report.definitions import DEFINITION, place_of

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "index.md": "README.md",
    "design.md": "DESIGN.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "skill.md": "SKILL.md",
}
LINKED = (
    "action.yml",
    "examples/*.py",
    "examples/workflows/*.yml",
    "properties/kernels/table.py",
    "properties/kernels/blocks.py",
    "properties/formats/kernel_binding.py",
    "subjects/kernels/packages.py",
    "tests/kernels/sanitizer_explained.toml",
)
NAMED = re.compile(r"^(#+) (S-[A-Z]+-\d+)\n\n\*\*(.+?)\.\*\* ", re.MULTILINE)
"""The number of a definition as a heading, and its name as the first words of what follows."""
LEFT = re.compile(rf"^```.*?^```|^#.*?$|`[^`]*`|\[[^\]]*\]\([^)]*\)|{DEFINITION.pattern}", re.MULTILINE | re.DOTALL)
"""Code, headings and links, which stay as they are, and definitions that are cited elsewhere."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside docs/."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted(path for pattern in LINKED for path in ROOT.glob(pattern)):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that are right in the repository into links that are right on the site."""
    if page.file.src_uri in PAGES:
        markdown = re.sub(r"(\]\(|src(?:set)?=\")docs/(?=[\w.-])", r"\1", markdown)
        markdown = markdown.replace("](docs/)", "](own-engine.md)")
    else:
        up = "../" * page.file.src_uri.count("/")
        markdown = markdown.replace(f"]({up}../", f"]({up}")
    markdown = markdown.replace("](examples/workflows)", "](examples/workflows/cpu.yml)")
    markdown = markdown.replace("](subjects/kernels)", "](subjects/kernels/packages.py)")
    for name, source in PAGES.items():
        if "/" not in page.file.src_uri:
            markdown = markdown.replace(f"]({source}", f"]({name}")
    return with_definitions(markdown, posixpath.dirname(page.file.src_uri))


def with_definitions(markdown: str, folder: str) -> str:
    """Return a page of a folder with each definition's name in its heading, and with links to definitions it cites."""

    def linked(found: re.Match[str]) -> str:
        if not DEFINITION.fullmatch(found[0]):
            return found[0]
        return f"[{found[0]}]({posixpath.relpath(place_of(found[0], 'docs/'), folder or '.')})"

    named = NAMED.sub(lambda found: f"{found[1]} {found[2]} {found[3]} {{: #{found[2].lower()} }}\n\n", markdown)
    return LEFT.sub(linked, named)

"""Site pages that live elsewhere in the repository: README, DESIGN, CONTRIBUTING, and files that pages link to."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"index.md": "README.md", "design.md": "DESIGN.md", "contributing.md": "CONTRIBUTING.md"}
LINKED = (
    "examples/*.py",
    "examples/workflows/*.yml",
    "properties/kernels/table.py",
    "properties/kernels/blocks.py",
    "properties/formats/kernel_binding.py",
    "subjects/kernels/packages.py",
    "tests/kernels/sanitizer_explained.toml",
)


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
        markdown = markdown.replace(f"]({source}", f"]({name}")
    return markdown

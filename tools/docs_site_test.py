"""docs_site.py finds everything that a page would load from elsewhere; docs_pages.py makes pages from sources."""

from __future__ import annotations

import re
from pathlib import Path

import docs_pages
import docs_site
import pytest
from header_version import library_headers

ROOT = Path(__file__).resolve().parent.parent

HEADER = """/* A library.
 *
 *     lib_open();
 *
 * Conventions
 *   - Times are nanoseconds. Lengths are
 *     bytes.
 *   - Nothing throws. */
#ifndef LIB_H
#define LIB_H
typedef struct lib_error {
  int code; /* 0: none */
} lib_error;
/* ---- opening -------------------------------------------------------------------------------- */
/* Opens <it>.
 * Twice is an error. */
OFP_API int ofp_open(const char* name,
                     lib_error* error);
#endif
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.html", '<script src="https://example.org/a.js"></script>'),
        ("x.html", '<link rel="stylesheet" href="//example.org/a.css">'),
        ("x.html", '<link rel="preconnect" href="https://fonts.gstatic.com">'),
        ("x.html", '<img src="http://example.org/a.png">'),
        ("x.html", '<img srcset="a.png 1x, https://example.org/a.png 2x">'),
        ("x.html", "<style>@import url(https://example.org/a.css);</style>"),
        ("x.html", '<p style="background: url(https://example.org/a.png)">'),
        ("x.css", "a { background: url('https://example.org/a.png') }"),
        ("x.css", '@import "https://example.org/a.css";'),
    ],
)
def test_what_comes_from_elsewhere_is_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert len(list(docs_site.foreign_assets(tmp_path))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.html", '<a href="https://example.org/">elsewhere</a> <link rel="canonical" href="https://example.org/x">'),
        ("x.html", '<script src="../a.js"></script><img src="a.png"><p>url(https://example.org/a.png)</p>'),
        ("x.css", "a { background: url(../a.png) } /* https://example.org */"),
    ],
)
def test_links_and_the_sites_own_files_are_not(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert list(docs_site.foreign_assets(tmp_path)) == []


@pytest.mark.parametrize("text", ["[x](nowhere.md)", "[x](index.md#nowhere)"])
def test_a_broken_link_fails_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    pytest.importorskip("mkdocs")  # ./dev test and ./dev docs install it
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Title\n\n{text}\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nvalidation: {links: {anchors: warn}}\n")
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    assert docs_site.main([str(tmp_path / "site")]) == 1
    assert "nowhere" in capfd.readouterr().err


def test_a_header_becomes_a_page(tmp_path: Path) -> None:
    (tmp_path / "lib.h").write_text(HEADER)
    page = docs_pages.header_page(tmp_path / "lib.h", "Title", "Intro.")
    assert page.startswith("# Title\n\nIntro.\n\nA library.\n\n    lib_open();\n\nConventions\n\n- Times are")
    assert "\n    bytes.\n- Nothing throws." in page
    assert "### `lib_error`\n\n```c\ntypedef struct lib_error {\n  int code; /* 0: none */\n} lib_error;\n```" in page
    assert "## Opening\n\n### `ofp_open`\n\nOpens &lt;it&gt;.\nTwice is an error.\n\n```c\nint ofp_open(" in page
    assert "LIB_H" not in page


def test_every_function_of_the_header_has_a_heading() -> None:
    header = library_headers()
    page = docs_pages.PAGES["reference/c.md"]()
    headings = " ".join(re.findall(r"^### .*$", page, re.MULTILINE))
    declared = re.findall(r"^OFP_API [^(]*?\b(ofp_\w+)\(", header, re.MULTILINE)
    assert len(declared) > 80
    assert [name for name in declared if f"`{name}`" not in headings] == []


def test_public_names_of_the_package_are_there() -> None:
    page = docs_pages.python_page(ROOT / "python/offpath")
    for name in ("connect", "Session", "Stream", "Pool", "Tracks", "Tasks", "Exchange", "Gauges", "Agent"):
        assert f"## `{name}`" in page
    assert "### `Session.stream`" in page
    assert "| `Timeout` | `TimeoutError` | 2 |" in page
    assert "_native" not in page


def test_names_of_modules_are_there_below_a_heading_of_their_own() -> None:
    page = docs_pages.python_page(ROOT / "python/offpath")
    for module, names in docs_pages.OF_MODULES.items():
        part = page.partition(f"## `offpath.{module}`\n")[2].partition("\n## ")[0]
        assert [name for name in names if f"\n### `{name}`\n" not in part] == []


def test_every_name_that_guides_import_from_a_module_is_there() -> None:
    page = docs_pages.python_page(ROOT / "python/offpath")
    pages = "".join(each.read_text() for each in (ROOT / "docs/guides").glob("*.md"))
    examples = "".join(each.read_text() for each in (ROOT / "examples").rglob("*.py"))
    imported = re.findall(r"^from offpath\.([\w.]+) import ([\w, ]+)$", pages + examples, re.MULTILINE)
    used = re.findall(r"\boffpath\.(dask|ray|spark)\.(\w+)\(", pages)
    assert len(imported) >= 5 and len(used) >= 3
    for module, names in [*imported, *used]:
        for name in names.split(", "):
            assert name in docs_pages.OF_MODULES.get(module, ()) or f"## `{name}`" in page, (module, name)


def test_code_within_a_docstring_is_escaped_by_markdown_alone() -> None:
    assert docs_pages.docstring_page("a < b as ``a < b``") == "a &lt; b as `a < b`"


def test_metrics_that_dashboards_and_alerts_name_are_there() -> None:
    page = docs_pages.metrics_page(ROOT / "src/agent/status")
    named: set[str] = set()
    for file in ("grafana-dashboard.json", "offpath-alerts.yml"):
        named |= set(
            re.findall(r"\boffpath_[a-z_]+?(?=_bucket\b|\b)", (ROOT / "packaging/monitoring" / file).read_text())
        )
    fixed = {name for name in named if not name.startswith(("offpath_host_", "offpath_program_"))}
    assert len(fixed) >= 15
    assert sorted(name for name in fixed if f"`{name}`" not in page) == []


def test_a_metric_whose_help_has_a_name() -> None:
    text = (
        'inline constexpr std::string_view a_help = "What it " "went into.", b_help = "B.";\n'
        "inline constexpr Figure<loop::Counters> loop_figures[] = {\n"
        '    {"x", value<&Counters::x>, "x_total", a_help, "in", "busy"},\n'
        '    {"y_s", seconds<&Counters::y>, "y_seconds", b_help},\n'
        '    {"only_in_the_status", value<&Counters::z>},\n'
        '    {"", [](const Counters& of) -> FigureValue { return of.text == "on"; }, "on",\n     "1: it is."},\n};\n'
        'void add_more(Families& families) {\n  families.add("more", "More.", 1);\n}\n'
    )
    assert list(docs_pages.metrics_of(text)) == [
        ("loop", "x_total", "What it went into."),
        ("loop", "y_seconds", "B."),
        ("loop", "on", "1: it is."),
        ("more", "more", "More."),
    ]


def test_every_metric_of_an_agent_is_on_its_page() -> None:
    page = docs_pages.metrics_page(ROOT / "src/agent/status")
    tables = "".join(file.read_text() for file in (ROOT / "src/agent/status").glob("figures*.h"))
    ends_in_total = set(re.findall(r',\s*"(\w+_total)"', tables))
    assert len(ends_in_total) > 70
    assert sorted(name for name in ends_in_total if f"`offpath_{name}` | counter" not in page) == []


def test_each_integration_has_a_page_and_a_row_in_the_readme() -> None:
    """A row links to one section of a page that exists, which has something to copy."""
    section = (ROOT / "README.md").read_text().split("## With other programs\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| program |")]
    linked = set()
    for row in rows:
        (link,) = re.findall(r"\]\(([^)]*)\)", row)
        page, _, anchor = link.partition("#")
        sections = {"": (text := (ROOT / page).read_text())}
        for heading in re.finditer(r"^(##+) (.*)\n", text, re.MULTILINE):
            (part, *_) = re.split(rf"^#{{2,{len(heading[1])}}} ", text[heading.end() :], maxsplit=1, flags=re.MULTILINE)
            sections[re.sub(r"[^a-z0-9-]", "", heading[2].lower().replace(" ", "-"))] = part
        assert anchor in sections, link
        assert "\n<!-- needs: " in sections[anchor], f"{link}: nothing to begin with"  # test_blocks.py runs it
        linked.add(Path(page).stem)
    assert len(rows) >= 15
    modules = {each.stem for each in (ROOT / "python/offpath/integrations").glob("*.py")} - {"__init__"}
    programs = {each.name for each in (ROOT / "integrations").iterdir()}
    assert modules | programs <= linked

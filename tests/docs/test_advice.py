"""Commands in pages and in files of the packages: secrets are readable by their owner only, and packages exist."""

import re
from collections.abc import Iterator

import yaml
from page_blocks import ROOT

FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "packaging").rglob("*"))]


def lines_with(pattern: str) -> Iterator[tuple[str, str]]:
    for path in FILES:
        if path.is_file() and b"\0" not in path.read_bytes():
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                if re.search(pattern, line):
                    yield f"{path.relative_to(ROOT)}:{number}", line


def test_a_key_is_never_readable_by_others():
    made = dict(lines_with(r"rand -hex \d+ *>|/dev/urandom"))
    assert len(made) >= 4
    assert {place: line for place, line in made.items() if not re.search(r"umask 0?077\b", line)} == {}


def test_offpath_is_installed_from_files_and_no_index():
    told = lines_with(r"pip install [^`]*\boffpath\b(?!-agent:)|offpath\[")
    assert {place: line for place, line in told if "build/package/" not in line} == {}


def test_apt_installs_single_packages_of_the_build():
    packages = [word for _, line in lines_with(r"apt install .*\.deb") for word in re.findall(r"[^\s`]*\.deb", line)]
    assert packages and [word for word in packages if not re.match(r"\./build/package/debian/[a-z]", word)] == []


def test_prometheus_asks_at_the_port_that_agents_open():
    settings = (ROOT / "packaging/offpath.toml").read_text(encoding="utf-8")
    port = re.search(r'^http = "[\d.]+:(\d+)"', settings, re.MULTILINE)[1]
    monitoring = (ROOT / "packaging/monitoring/prometheus.yml").read_text(encoding="utf-8")
    assert yaml.safe_load(monitoring) and set(re.findall(r"(?:dpu\d+|0\.0\.0\.0):(\d+)", monitoring)) == {port}


def test_the_glossary_is_in_order():
    page = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^\| ([^|(]+?)(?: \(\w+\))? \| (?!meaning)", page, re.MULTILINE)]
    assert {"lease", "snapshot", "exchange", "gauge", "grant", "view", "step", "spill", "incarnation", "sandbox"} <= {
        *words
    }
    assert words == sorted(words)

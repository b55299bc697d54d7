"""Packaging files agree with the sources: versions, folders, options of CMake. (./dev package builds them.)"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "packaging" / "spack" / "package.py"


def header_version() -> str:
    header = (ROOT / "include/offpath/offpath.h").read_text()
    return ".".join(re.findall(r"#define OFP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def calls(tree: ast.AST, name: str) -> list[list[object]]:
    """The constant arguments of every call of a function or method of this name."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [node for node in found if getattr(node.func, "attr", getattr(node.func, "id", None)) == name]
    return [[getattr(argument, "value", None) for argument in node.args] for node in named]


def test_every_package_has_the_version_of_the_header() -> None:
    changelog = (ROOT / "packaging/debian/changelog").read_text()
    assert changelog.startswith(f"offpath ({header_version()}) ")
    assert calls(ast.parse(RECIPE.read_text()), "version") == [[header_version()]]


def test_the_library_package_is_named_for_the_soname() -> None:
    control = (ROOT / "packaging/debian/control").read_text()
    assert f"Package: liboffpath{header_version().split('.')[0]}\n" in control


def test_the_recipe_names_options_and_folders_that_there_are() -> None:
    tree = ast.parse(RECIPE.read_text())
    cmake = (ROOT / "CMakeLists.txt").read_text()
    options = {str(arguments[0]) for arguments in calls(tree, "define")}
    assert len(options) >= 8
    assert [name for name in options if not re.search(rf"\b(?:option|set)\({name}\b", cmake)] == []
    order = re.findall(r"\bsrc/\w+", cmake.split("set(OFFPATH_FOLDERS")[1].split("CACHE")[0])
    lists = [ast.literal_eval(node) for node in ast.walk(tree) if isinstance(node, ast.List) and node.elts
             and all(isinstance(each, ast.Constant) for each in node.elts)]  # fmt: skip
    assert len(lists) == 2
    agent = lists[1]  # the first is the library for programs alone
    # The agent names every part there is, test doubles apart.
    parts = [folder for folder in order if folder != "src/testing"]
    assert agent == [folder for folder in parts if (ROOT / folder / "CMakeLists.txt").exists()]
    for folders in lists:
        whole = [folder for folder in folders if folder.count("/") == 1]
        assert whole == [folder for folder in order if folder in whole]  # a folder sees those before it only
        assert all((ROOT / folder / "CMakeLists.txt").exists() for folder in folders)


def test_every_program_of_a_debian_package_has_its_manual_page() -> None:
    """Except the worker, which only the agent starts."""
    for listed in sorted((ROOT / "packaging/debian").glob("*.install")):
        files = set(listed.read_text().split())
        programs = {Path(file).name for file in files if file.startswith("usr/bin/")} - {"offpath-worker"}
        assert {f"usr/share/man/man1/{program}.1" for program in programs} == {
            file for file in files if "/man/" in file
        }


def test_scripts_are_shell() -> None:
    scripts = [*sorted((ROOT / "packaging").rglob("*.sh")), ROOT / "packaging/debian/offpath-agent.postinst"]
    assert len(scripts) >= 5
    for script in scripts:
        checked = subprocess.run(["sh", "-n", script], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr

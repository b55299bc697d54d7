"""Packaging files agree with the sources: versions, folders, options of CMake. (./dev package builds them.)"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from debian_packages import listed
from header_version import header_version

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "packaging" / "spack" / "package.py"
SPEC = ROOT / "packaging" / "rpm" / "offpath.spec"
CHART = ROOT / "packaging" / "helm" / "offpath-agent"
IMAGE = "image.repository=registry.example/offpath-agent"
KUBERNETES = "1.31"  # the oldest that kubernetes-validate and DPF both know


def calls(tree: ast.AST, name: str) -> list[list[object]]:
    """The constant arguments of every call of a function or method of this name."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [node for node in found if getattr(node.func, "attr", getattr(node.func, "id", None)) == name]
    return [[getattr(argument, "value", None) for argument in node.args] for node in named]


def test_every_package_has_the_version_of_the_header() -> None:
    changelog = (ROOT / "packaging/debian/changelog").read_text()
    assert changelog.startswith(f"offpath ({header_version()}) ")
    assert calls(ast.parse(RECIPE.read_text()), "version") == [[header_version()]]
    assert re.findall(r"^Version: +(.*)$", SPEC.read_text(), re.MULTILINE) == [header_version()]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (header_version(), header_version())


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


DIRECTIVES = ("license", "version", "variant", "depends_on", "conflicts")


class CMakePackage:
    """As far as the recipe knows Spack's own."""

    @staticmethod
    def define(name: str, value: object) -> tuple[str, object]:
        return name, value


@pytest.mark.parametrize("spack", ["1.0", "0.23"])
@pytest.mark.parametrize("agent", [True, False])
def test_the_recipe_uses_what_spack_has(spack: str, agent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Spack 1.0 build systems are in spack_repo, with the directives of their own."""
    told: dict[str, list[str]] = {}
    package, build_system = ModuleType("spack.package"), ModuleType("cmake")
    for name in (*DIRECTIVES, "generator"):
        owner = build_system if name == "generator" and spack == "1.0" else package
        setattr(owner, name, lambda first, *_, name=name, **__: told.setdefault(name, []).append(first))
    package.when = lambda _: nullcontext()
    (build_system if spack == "1.0" else package).CMakePackage = CMakePackage
    monkeypatch.setitem(sys.modules, "spack", ModuleType("spack"))
    monkeypatch.setitem(sys.modules, "spack.package", package)
    of_repository = build_system if spack == "1.0" else None  # None: there is no such module
    monkeypatch.setitem(sys.modules, "spack_repo.builtin.build_systems.cmake", of_repository)
    for parent in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))

    names: dict[str, Any] = {}
    exec(compile(RECIPE.read_text(), str(RECIPE), "exec"), names)
    recipe = names["Offpath"]()
    recipe.spec = SimpleNamespace(satisfies=lambda variant: variant == "+verbs" or (agent and variant == "+agent"))
    assert (told["version"], told["generator"]) == ([header_version()], ["ninja"])
    assert {"arrow@21: +compute +dataset", "openssl@3:"} <= set(told["depends_on"])
    settings = dict(recipe.cmake_args())
    assert settings["OFFPATH_ARROW"] == ("system" if agent else "off")
    assert ("src/agent" in settings["OFFPATH_FOLDERS"]) == agent and settings["OFFPATH_VERBS"] == "on"


def test_programs_for_the_other_processor_have_the_libraries_of_this_one() -> None:
    """A library that is missing leaves out a part without a word."""
    here = (ROOT / "packages/debian.txt").read_text().partition("# libraries, ")[2].partition("\n\n")[0]
    libraries = {line for line in here.splitlines()[1:] if line.endswith("-dev")} - {"nlohmann-json3-dev"}  # of ADIOS2
    assert len(libraries) >= 14 and libraries - set(listed(ROOT / "packages/arm-sysroot.txt")) == set()


def test_every_program_of_a_debian_package_has_its_manual_page() -> None:
    """Except the worker, which only the agent starts."""
    for list_file in sorted((ROOT / "packaging/debian").glob("*.install")):
        files = set(list_file.read_text().split())
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


def checked(*command: str | Path) -> str:
    """A program's output. Skips the test without such a program."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_rpm_reads_the_spec() -> None:
    assert "-DOFFPATH_ARROW=system" in checked("rpmspec", "--parse", SPEC)
    made = checked("rpmspec", "--query", "--queryformat", "%{name} ", SPEC).split()
    assert made == ["offpath", "offpath-agent", "offpath-sampler", "offpath-libs", "offpath-devel"]


def test_rpmlint_has_nothing_to_say() -> None:
    said = checked("rpmlint", "-c", SPEC.with_name("rpmlint.toml"), SPEC)
    assert "0 errors, 0 warnings" in said, said


def test_the_spec_builds_without_what_the_debian_packages_leave_out() -> None:
    """Both say which parts of the build they leave out: the same ones."""
    left_out = re.compile(r"-D(OFFPATH_\w+)=(?:OFF|off)\b")
    rules = (ROOT / "packaging/debian/rules").read_text()
    assert sorted(left_out.findall(SPEC.read_text())) == sorted(left_out.findall(rules))


FEDORAS = {  # requirements of a build that the two name differently
    "flatbuffers-compiler": "flatbuffers-compiler", "libflatbuffers-dev": "flatbuffers-devel",
    "libcli11-dev": "cmake(CLI11)", "libcpp-httplib-dev": "cmake(httplib)", "libexpected-dev": "cmake(tl-expected)",
    "libfmt-dev": "cmake(fmt)", "libspdlog-dev": "cmake(spdlog)", "libtomlplusplus-dev": "cmake(tomlplusplus)",
    "libssl-dev": "pkgconfig(openssl)", "libpmix-dev": "pkgconfig(pmix)",
}  # fmt: skip


def test_the_spec_builds_with_what_the_debian_packages_do() -> None:
    """A library that is missing leaves out a part without a word."""
    control = (ROOT / "packaging/debian/control").read_text().partition("Build-Depends:")[2].partition("\nStandards")[0]
    debians = set(re.findall(r"^ ([a-z][\w-]*)", control, re.MULTILINE)) - {"cmake", "ninja-build", "pkg-config"}
    wanted = {FEDORAS.get(name, f"pkgconfig({name.removesuffix('-dev')})") for name in debians - {"debhelper-compat"}}
    fedoras = set(re.findall(r"^BuildRequires: +(\S+)", SPEC.read_text(), re.MULTILINE))
    assert len(wanted) >= 12 and wanted - fedoras == set()


def test_the_spec_has_the_programs_and_pages_of_the_debian_packages() -> None:
    installed = "".join(each.read_text() for each in (ROOT / "packaging/debian").glob("*.install"))
    files = SPEC.read_text().partition("%files")[2]
    names = re.compile(r"(?:usr/bin|%\{_bindir\})/(\S+)|man1/([\w-]+)\.1")
    in_debian, in_rpm = ({next(filter(None, found)) for found in names.findall(text)} for text in (installed, files))
    assert "offpath-agent" in in_debian
    assert in_rpm == in_debian


def templates() -> str:
    return "".join(each.read_text() for each in sorted((CHART / "templates").iterdir()))


def test_the_chart_uses_every_value_and_no_other() -> None:
    """Except those of DPF's contract that concern Services."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    groups = {name: values.pop(name) for name in ("serviceDaemonSet", "image", "rdma", "folders")}
    names = {*values, *(f"{group}.{name}" for group, held in groups.items() for name in held)}
    assert set(re.findall(r"\.Values\.([\w.]+)", templates())) == names - {"exposedPorts"}


@pytest.mark.parametrize("rdma", ["true", "false"])
def test_helm_renders_what_kubernetes_takes(rdma: str, tmp_path: Path) -> None:
    checked("helm", "lint", "--strict", CHART, "--set", IMAGE)
    terms = "serviceDaemonSet.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]"
    settings = [IMAGE, f"rdma.enabled={rdma}", "secretName=key", f"{terms}.key=dpu", f"{terms}.operator=Exists"]
    rendered = checked("helm", "template", "offpath", CHART, "--kube-version", KUBERNETES,
                       *(word for each in settings for word in ("--set", each)))  # fmt: skip
    config, agents = sorted(yaml.safe_load_all(rendered), key=lambda each: str(each["kind"]))
    assert config["data"]["agent.toml"] == yaml.safe_load((CHART / "values.yaml").read_text())["config"]
    pod = agents["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    assert pod["hostNetwork"] and pod["hostPID"]
    assert agent["image"] == f"registry.example/offpath-agent:{header_version()}"
    assert ("/dev/infiniband" in {each["mountPath"] for each in agent["volumeMounts"]}) == (rdma == "true")
    assert agent["securityContext"].get("privileged", False) == (rdma == "true")
    (tmp_path / "rendered.yaml").write_text(rendered)
    checked("kubernetes-validate", "--strict", "--kubernetes-version", KUBERNETES, tmp_path / "rendered.yaml")

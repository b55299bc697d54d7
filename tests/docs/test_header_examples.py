"""The examples in the comments of the C interface's headers: each compiles, and the first one runs and does its
work."""

import re
import subprocess
import textwrap

import numpy as np
import offpath
import pytest
from header_version import LIBRARY_HEADERS, library_headers
from page_blocks import ROOT
from page_run import COMPILERS, ENDINGS, PageRun

HEADER = library_headers()
COMMENTED = re.findall(r"(?:^ \*     .*\n)+", HEADER, re.MULTILINE)
EXAMPLES = [textwrap.dedent(re.sub(r"(?m)^ \*", "", each)) for each in COMMENTED]
CODE = [each for each in EXAMPLES if "ofp_error" in each or "&error" in each]

# Names that the text around an example has introduced, by a word of the example.
CONTEXT = {
    "ofp_connect": "int n = 1000; int32_t id[1000]; double x[1000][3];\n"
    "for (int i = 0; i < n; ++i) { id[i] = i; for (int a = 0; a < 3; ++a) x[i][a] = i + a; }\n",
    "ofp_pool_want": "ofp_channel *channel = NULL; ofp_error error; ofp_listing *listing;\n",
    "ofp_query_make": "ofp_channel *channel = NULL; ofp_error error; void *query; uint64_t query_bytes;\n"
    "ofp_query *answer; ofp_frame *frame;\n",
    "ofp_exchange_open": "ofp_channel *channel = NULL; ofp_error error; struct { double watts; } load = {1};\n",
    "ofp_task_submit": "ofp_channel *channel = NULL; ofp_error error; uint32_t rank = 0, ranks = 1; uint64_t n = 10;\n"
    "double x[30]; ofp_segment *forces = NULL;\n",
}
ENDS = {"ofp_connect": "if (ofp_wait_stored(stream, ticket, OFP_FOREVER, &error)) return 1;\nofp_close(channel);\n"}


def program(example: str) -> str:
    (word,) = [word for word in CONTEXT if f"{word}(" in example]
    includes = "".join(f"#include <{name}.h>\n" for name in ("offpath/offpath", "stdio", "stdlib"))
    return f"{includes}int main(void) {{\n{CONTEXT[word]}{example}{ENDS.get(word, '')}return 0;\n}}\n"


def test_each_context_has_an_example():
    assert len(CODE) == len(CONTEXT)


@pytest.mark.parametrize("example", CODE, ids=lambda example: next(word for word in CONTEXT if f"{word}(" in example))
def test_an_example_compiles(example, tmp_path):
    source = tmp_path / "example.c"
    source.write_text(program(example))
    checks = ["-Wall", "-Wextra", "-Werror", "-Wno-unused", "-pedantic", "-fsyntax-only", f"-I{ROOT / 'include'}"]
    compiled = subprocess.run([*COMPILERS["c"], *checks, source], capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize("language", ["c", "cpp"])
@pytest.mark.parametrize("header", LIBRARY_HEADERS)
def test_each_header_brings_the_whole_interface(header, language, tmp_path):
    source = tmp_path / f"alone{ENDINGS[language]}"
    source.write_text(
        f"#include <offpath/{header}>\n"
        "int use(ofp_channel *c, ofp_exchange *e, ofp_tasks *t) { return c && e && t ? OFP_OK : OFP_INVALID; }\n"
    )
    checks = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}"]
    compiled = subprocess.run([*COMPILERS[language], *checks, source], capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr


def test_the_first_example_hands_its_arrays_over(tmp_path):
    source = tmp_path / "example.c"
    source.write_text(program(CODE[0]))
    made = tmp_path / "example"
    subprocess.run([*COMPILERS["c"], source, "-o", made, *PageRun.linked()], check=True)
    with offpath.Agent.start(memory="64MiB") as agent, offpath.connect(agent.address) as session:
        ran = subprocess.run([made], capture_output=True, text=True, timeout=120, env={"OFFPATH_AGENT": agent.address})
        assert (ran.returncode, ran.stderr) == (0, "")
        table = session.pool("local:/particles").get("step0", "rank0")
        assert table["id"].to_pylist() == list(range(1000))
        assert np.array_equal(table["x"].combine_chunks().flatten().to_numpy()[:4], [0, 1, 2, 1])

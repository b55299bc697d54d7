# The recipe for Spack, for a repository of your own and a checkout; docs/operate/install.md says how.
#
# Spack before 1.0 has no recipe of tomlplusplus, and one of arrow that knows no datasets: bring newer recipes, or name
# external packages.
# +agent where agents run, on DPUs or beside programs; ~agent for programs alone.
from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
except ImportError:  # before Spack 1.0 both came with spack.package
    pass


class Offpath(CMakePackage):
    """Moves data out of programs' memory and into Apache Arrow, on the DPU beside the host."""

    license("Apache-2.0")

    version("0.1.0")

    variant("agent", default=True, description="the agent, which needs Arrow; without: the library for programs")
    variant("verbs", default=True, description="RDMA links; rdma-core is loaded when one is used")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("flatbuffers", type="build")
    depends_on("fmt@9:")
    depends_on("tl-expected")
    depends_on("tomlplusplus")
    depends_on("openssl@3:")
    depends_on("rdma-core@23:", when="+verbs")
    with when("+agent"):
        depends_on("arrow@21: +compute +dataset")  # Acero, which computes queries, comes with the datasets only
        depends_on("spdlog")
        depends_on("cli11")
        depends_on("cpp-httplib@0.11:")
        depends_on("libseccomp")
        depends_on("lz4")
        depends_on("zstd")

    generator("ninja")
    conflicts("%gcc@:11", msg="C++20 as GCC 12 or Clang 14 know it")

    def cmake_args(self):
        agent = self.spec.satisfies("+agent")
        # Hosts have the library and the samplers.
        folders = ["src/base", "src/wire", "src/link", "src/channel", "src/frame",
                   "src/telemetry/host_sampler", "src/host"]  # fmt: skip
        if agent:
            folders = ["src/base", "src/actuator", "src/wire", "src/link", "src/channel", "src/plugin", "src/service",
                       "src/connections", "src/loop", "src/group", "src/frame", "src/mover", "src/pool", "src/sift",
                       "src/telemetry", "src/exchange", "src/task", "src/tcp", "src/host", "src/sockets",
                       "src/supervise", "src/agent"]  # fmt: skip
        return [
            self.define("OFFPATH_FOLDERS", folders),
            self.define("OFFPATH_ARROW", "system" if agent else "off"),
            self.define("OFFPATH_VERBS", "on" if self.spec.satisfies("+verbs") else "off"),
            self.define("OFFPATH_XDP", "off"),
            self.define("OFFPATH_TESTS", False),
            self.define("OFFPATH_BENCH", False),
            self.define("OFFPATH_EXAMPLES", False),
            self.define("OFFPATH_PYTHON", False),
            self.define("OFFPATH_FORTRAN", False),
        ]

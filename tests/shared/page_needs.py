"""The words that markers may have for a block that runs here. Any other words are the reason why it does not run;
docs/internals/hacking.md explains each for authors of pages."""

CONTINUES, COMPILED_ONLY = "continues the block before", "compiled only"
IN_PLUGIN, IN_TEST = "inside a function of a plug-in", "inside a test of the sources"
SETTINGS_ABOVE, CORRELATION = "agent with the settings above", "agent with the plug-in correlation of examples/09_task"
PARTICLES, MD = "agent with the plug-in particles of examples/05_plugin", "agent with the plug-in md"
AGENTS = {"agent", SETTINGS_ABOVE, CORRELATION, PARTICLES, MD}
EXAMPLES = {CORRELATION: ("correlation", "09_task/correlate_plugin.c"),
            PARTICLES: ("particles", "05_plugin/particles_plugin.c")}  # fmt: skip
MACHINE, STAYS, SAVED = "a machine of its own", "stays", "saved under its name"
INTERRUPTED, FAILS, REPEATED = "after Ctrl-C", "fails", "after a moment"
OPEN_MPI, MPICH, SIMULATION = "Open MPI", "MPICH", "a program of yours"
SOURCES, INSTALLED, POLICY = "the sources", "the installed library", "a policy of sockets"
CHART, REPORT, PROMETHEUS = "the chart", "a report of benchmarks", "Prometheus"
KNOWN = AGENTS | {
    "offpath", "numpy", "pyarrow", "pyarrow with Flight", "compiler", "a current directory to write to", "offpath-md",
    "LAMMPS", "Dask", "opentelemetry", CHART, REPORT, PROMETHEUS, SOURCES, INSTALLED, POLICY, CONTINUES, COMPILED_ONLY,
    IN_PLUGIN, IN_TEST, MACHINE, STAYS, SAVED, INTERRUPTED, FAILS, REPEATED, OPEN_MPI, MPICH, SIMULATION,
}  # fmt: skip

"""The libraries for linking the agent's wheel, so that systems older than this machine can run it.

GCC compiles it, because libarrow's interface is that of GCC's C++ library. The linker gets the glibc of an older
version: the PyPI package ziglang has the symbols of each. GCC's C++ library is linked in, and so are the few libraries
that Debian has compiled for its own glibc alone.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from building import ROOT, PackageError, run
from client_wheel import Machine
from debian_packages import fetch_source

MISSING = ROOT / "packaging" / "glibc_2_28.c"
DYNAMIC = ("c", "m", "pthread", "dl", "rt", "util", "resolv", "ld")
STATIC = ("brotlicommon", "brotlidec", "brotlienc", "z", "zstd", "lz4")
HTTPLIB = ("cpp-httplib", "brotlienc", "brotlidec", "brotlicommon", "z")  # in the order in which they are linked
FLAGS = ("-O2", "-fPIC", "-ffunction-sections", "-fdata-sections")


def make_glibc(zig: Path, machine: Machine, folder: Path) -> Path:
    """A folder for GCC's option -B: the start-up files of a program, and glibc's libraries for the linker."""
    made, scratch = folder / "glibc", folder / "zig"
    made.mkdir(parents=True)
    scratch.mkdir()
    source, program = scratch / "empty.c", scratch / "empty"
    source.write_text("int main(void) { return 0; }\n")
    cache = {f"ZIG_{kind}_CACHE_DIR": str(scratch / kind.lower()) for kind in ("GLOBAL", "LOCAL")}
    run(zig, "cc", "-target", machine.target, "-fno-sanitize=undefined", "-fPIE", "-pie", source,
        "-o", program, **cache)  # fmt: skip
    objects = scratch / "global/o"
    shutil.copy(next(objects.glob("*/Scrt1.o")), made)
    nonshared = made / "libc_nonshared.a"
    shutil.copy(next(objects.glob("*/libc_nonshared.a")), nonshared)
    run(*machine.compiler("gcc"), *FLAGS, "-c", MISSING, "-o", scratch / "missing.o")
    run(machine.tool("ar"), "q", nonshared, scratch / "missing.o")
    libraries = {}
    for name in DYNAMIC:
        (library,) = objects.glob(f"*/lib{name}.so.*")
        libraries[name] = shutil.copy(library, made / library.name)
        (made / f"lib{name}.so").symlink_to(library.name)
    # Since glibc 2.34 libc contains what were separate libraries.
    others = " ".join(str(library) for name, library in libraries.items() if name != "c")
    (made / "libc.so").unlink()
    (made / "libc.so").write_text(f"GROUP ( {libraries['c']} {nonshared} AS_NEEDED ( {others} ) )\n")
    linker = shutil.which("ld.lld-14")
    if linker is None:
        raise PackageError("the agent's wheel is linked by ld.lld-14: install Debian's package lld-14")
    (made / "ld.lld").symlink_to(linker)  # where GCC looks for it
    return made


def make_libraries(machine: Machine, folder: Path) -> Path:
    """A folder for CMake: libraries to link in, in place of shared ones, and where to find cpp-httplib."""
    made, scratch = folder / "libraries", folder / "httplib"
    made.mkdir(parents=True)
    for name in STATIC:
        library = machine.libraries / f"lib{name}.a"
        if not library.exists():
            raise PackageError(f"{library} is missing: install Debian's package that has it")
        shutil.copy(library, made)
    sources = fetch_source("cpp-httplib", "libcpp-httplib-dev", scratch)
    run("python3", sources / "split.py", "--out", scratch / "out", cwd=sources)
    asked = subprocess.run(["pkg-config", "--cflags", "cpp-httplib"], capture_output=True, text=True, check=True)
    flags = asked.stdout.split()
    run(*machine.compiler("g++"), "-std=c++17", *FLAGS, *flags, "-c", scratch / "out/httplib.cc",
        "-o", scratch / "httplib.o")  # fmt: skip
    run(machine.tool("ar"), "q", made / "libcpp-httplib.a", scratch / "httplib.o")
    needed = ";".join(str(made / f"lib{each}.a") for each in HTTPLIB)
    (made / "httplibConfig.cmake").write_text(
        "add_library(httplib::httplib INTERFACE IMPORTED)\n"
        f'set_target_properties(httplib::httplib PROPERTIES INTERFACE_COMPILE_OPTIONS "{";".join(flags)}"\n'
        f'  INTERFACE_LINK_LIBRARIES "{needed}")\n'
    )
    return made


def linker_flags(glibc: Path) -> str:
    # GNU ld makes an empty relocation here, which the loader of programs refuses.
    # The symbols of the C++ library stay the program's own: libarrow has its own one, the system's. OpenSSL wants
    # symbols of a newer glibc, which the machine that has it has as well.
    return f"-B{glibc} -fuse-ld=lld -static-libstdc++ -Wl,--exclude-libs,libstdc++.a -Wl,--allow-shlib-undefined"

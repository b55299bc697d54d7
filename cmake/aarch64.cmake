# Toolchain of preset dpu-aarch64: Debian's cross compiler, and libraries of arm64 unpacked by tools/sysroot.py.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

cmake_path(SET offpath_arm NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../build/arm")
set(CMAKE_SYSROOT ${offpath_arm}/sysroot)
set(OFFPATH_ARROW_WHEEL_DIR ${offpath_arm}/wheel CACHE PATH "an unpacked wheel of pyarrow")

# Libraries for the DPU, programs of this machine.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

# The emulator for tests, if it is installed.
find_program(OFFPATH_QEMU_AARCH64 qemu-aarch64-static)
if(OFFPATH_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${OFFPATH_QEMU_AARCH64} -L ${CMAKE_SYSROOT})
endif()

# Where things are installed. The prefix is a virtual environment or a plain prefix:
#
#   bin/                                 programs, offpath
#   lib/                                 liboffpath.so, liboffpath_openssl.so, cmake/offpath, pkgconfig
#   include/offpath/                     the C and C++ headers
#   lib/pythonX.Y/site-packages/offpath/ the package and its bindings
#
# Under scikit-build-core the same places are spelt by its variables, so a wheel unpacks to the same layout.
if(SKBUILD)
  set(OFFPATH_BIN_DIR ${SKBUILD_SCRIPTS_DIR})
  set(OFFPATH_LIB_DIR ${SKBUILD_DATA_DIR}/lib)
  set(OFFPATH_INCLUDE_DIR ${SKBUILD_DATA_DIR}/include)
  set(OFFPATH_SITE_DIR ${SKBUILD_PLATLIB_DIR})
else()
  include(GNUInstallDirs)
  set(CMAKE_INSTALL_LIBDIR lib)
  set(OFFPATH_BIN_DIR bin)
  set(OFFPATH_LIB_DIR lib)
  set(OFFPATH_INCLUDE_DIR include)
  set(OFFPATH_SITE_DIR lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
endif()

# How the parts find each other once installed, wherever the prefix is.
set(offpath_site_from_lib python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
set(OFFPATH_PROGRAM_RPATH "$ORIGIN/../lib;$ORIGIN/../lib/${offpath_site_from_lib}/pyarrow")
set(OFFPATH_MODULE_RPATH "$ORIGIN/../../..;$ORIGIN/../pyarrow")

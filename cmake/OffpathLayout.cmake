# Where things are installed. The prefix is a virtual environment or a plain prefix:
#
#   bin/                                 programs, offpath
#   lib/                                 liboffpath.so, liboffpath_openssl.so.0, cmake/offpath, pkgconfig; a Debian
#                                        package says lib/TRIPLET by CMAKE_INSTALL_LIBDIR
#   lib/offpath/                         what the agent loads when it is needed (src/mover/arrow_modules.h), and
#                                        libarrow, where the package has to bring it (OFFPATH_BUNDLE_ARROW);
#                                        lib64/offpath where libraries are in lib64
#   include/offpath/                     the C and C++ headers
#   share/man/man1/                      manual pages
#   lib/pythonX.Y/site-packages/offpath/ the package and its bindings
#
# Under scikit-build-core the same places have the names of its variables, so a wheel unpacks to the same layout. Only
# its programs are inside the package, in offpath/bin, and what the agent loads in offpath/lib/offpath: there they find
# pyarrow's libarrow, and libraries added by auditwheel, relative to themselves, wherever pip puts the package. The
# scripts in bin/ start them.
if(SKBUILD)
  set(OFFPATH_BIN_DIR ${SKBUILD_PLATLIB_DIR}/offpath/bin)
  set(OFFPATH_LIB_DIR ${SKBUILD_DATA_DIR}/lib)
  set(OFFPATH_INCLUDE_DIR ${SKBUILD_DATA_DIR}/include)
  set(OFFPATH_MAN_DIR ${SKBUILD_DATA_DIR}/share/man/man1)
  set(OFFPATH_SITE_DIR ${SKBUILD_PLATLIB_DIR})
else()
  set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "libraries, below the prefix") # PATH would be made absolute
  set(OFFPATH_BIN_DIR bin)
  set(OFFPATH_LIB_DIR ${CMAKE_INSTALL_LIBDIR})
  set(OFFPATH_INCLUDE_DIR include)
  set(OFFPATH_MAN_DIR share/man/man1)
  set(OFFPATH_SITE_DIR lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
endif()

# The modules of the agent, in the build as in an installation: it finds them from its own folder.
if(SKBUILD)
  set(OFFPATH_MODULE_DIR lib/offpath)
  set(OFFPATH_MODULE_INSTALL_DIR ${SKBUILD_PLATLIB_DIR}/offpath/${OFFPATH_MODULE_DIR})
else()
  set(offpath_lib lib)
  if(NOT IS_ABSOLUTE "${OFFPATH_LIB_DIR}")
    string(REGEX REPLACE "/.*" "" offpath_lib ${OFFPATH_LIB_DIR}) # of lib/TRIPLET, too
  endif()
  set(OFFPATH_MODULE_DIR ${offpath_lib}/offpath)
  set(OFFPATH_MODULE_INSTALL_DIR ${OFFPATH_MODULE_DIR})
endif()
set(OFFPATH_MODULES_FROM_BIN ../${OFFPATH_MODULE_DIR})
# What tells builds apart whose types may differ: all sources of both sides, the compiler and its flags.
file(GLOB_RECURSE offpath_sources ${PROJECT_SOURCE_DIR}/src/*.h ${PROJECT_SOURCE_DIR}/src/*.cc)
list(SORT offpath_sources)
set(offpath_sums "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS}")
foreach(source IN LISTS offpath_sources)
  file(SHA256 ${source} sum)
  string(APPEND offpath_sums ${sum})
endforeach()
string(SHA256 OFFPATH_MODULE_ID "${PROJECT_VERSION} ${offpath_sums}")
string(SUBSTRING ${OFFPATH_MODULE_ID} 0 12 OFFPATH_MODULE_ID)

# The paths by which the installed parts find each other, for any prefix.
set(offpath_site_from_lib python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
if(SKBUILD)
  set(OFFPATH_PROGRAM_RPATH "$ORIGIN/../../../..;$ORIGIN/../../pyarrow")
  set(OFFPATH_ARROW_RPATH "$ORIGIN/../../../pyarrow")
elseif(OFFPATH_BUNDLE_ARROW)
  set(OFFPATH_PROGRAM_RPATH "$ORIGIN/${OFFPATH_MODULES_FROM_BIN}")
  set(OFFPATH_ARROW_RPATH "$ORIGIN")
else()
  set(OFFPATH_PROGRAM_RPATH "$ORIGIN/../lib;$ORIGIN/../lib/${offpath_site_from_lib}/pyarrow")
  set(OFFPATH_ARROW_RPATH "$ORIGIN/../../lib/${offpath_site_from_lib}/pyarrow")
endif()
set(OFFPATH_MODULE_RPATH "$ORIGIN/../../..;$ORIGIN/../pyarrow")

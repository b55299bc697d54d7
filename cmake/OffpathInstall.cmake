# The Python package. A wheel brings its own copy of the sources and its own launcher.
if(OFFPATH_PYTHON AND NOT SKBUILD)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/offpath DESTINATION ${OFFPATH_SITE_DIR} COMPONENT python
          FILES_MATCHING REGEX "\\.(py|pyi|toml|json|css|html)$|/py\\.typed$|/in\\.[a-z]+$"
          PATTERN __pycache__ EXCLUDE PATTERN *_test.py EXCLUDE)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/offpath.in ${PROJECT_BINARY_DIR}/launcher/offpath @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/launcher/offpath DESTINATION ${OFFPATH_BIN_DIR} COMPONENT python)
endif()

# The C SDK: what a C, C++ or Fortran program needs to be built on an installed Offpath. The shared
# library is the target `offpath` of src/host.
if(NOT TARGET offpath)
  return()
endif()
include(CMakePackageConfigHelpers)

set_target_properties(offpath PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
if(NOT SKBUILD)
  set(offpath_export EXPORT offpathTargets)
endif()
install(TARGETS offpath ${offpath_export} LIBRARY DESTINATION ${OFFPATH_LIB_DIR} COMPONENT sdk
        NAMELINK_COMPONENT sdk INCLUDES DESTINATION ${OFFPATH_INCLUDE_DIR})
# Loaded by liboffpath.so, from where that lies, when a network address is used.
install(TARGETS offpath_openssl_module LIBRARY DESTINATION ${OFFPATH_LIB_DIR} COMPONENT sdk)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/offpath DESTINATION ${OFFPATH_INCLUDE_DIR} COMPONENT sdk)

if(NOT SKBUILD)
  set(package_dir ${OFFPATH_LIB_DIR}/cmake/offpath)
  install(EXPORT offpathTargets NAMESPACE offpath:: DESTINATION ${package_dir} COMPONENT sdk)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/offpathConfig.cmake.in
    ${PROJECT_BINARY_DIR}/sdk/offpathConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/sdk/offpathConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  file(RELATIVE_PATH offpath_prefix_from_pc /prefix/${OFFPATH_LIB_DIR}/pkgconfig /prefix)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/offpath.pc.in ${PROJECT_BINARY_DIR}/sdk/offpath.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/sdk/offpathConfig.cmake ${PROJECT_BINARY_DIR}/sdk/offpathConfigVersion.cmake
          DESTINATION ${package_dir} COMPONENT sdk)
  install(FILES ${PROJECT_BINARY_DIR}/sdk/offpath.pc DESTINATION ${OFFPATH_LIB_DIR}/pkgconfig COMPONENT sdk)
endif()

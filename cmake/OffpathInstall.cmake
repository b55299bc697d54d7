# The Python package. A wheel brings its own copy of the sources and its own launcher.
if(OFFPATH_PYTHON AND NOT SKBUILD)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/offpath DESTINATION ${OFFPATH_SITE_DIR} COMPONENT python
          FILES_MATCHING REGEX "\\.(py|pyi|toml|json|css|js|html)$|/py\\.typed$|/in\\.[a-z]+$"
          PATTERN __pycache__ EXCLUDE PATTERN *_test.py EXCLUDE)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/offpath.in ${PROJECT_BINARY_DIR}/launcher/offpath @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/launcher/offpath DESTINATION ${OFFPATH_BIN_DIR} COMPONENT python)
endif()

# Manual pages, from the programs' own help. Programs for another processor run in its emulator; without one they get no
# pages. The page of the command `offpath` needs a Python with the command's requirements.
set(man_pages)
if(Python_Interpreter_FOUND AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  foreach(program IN ITEMS offpath-agent offpath-sampler offpath-region-sampler offpath-slow-path offpath-supervisor
          offpath-topology)
    if(TARGET ${program})
      set(man_page ${PROJECT_BINARY_DIR}/man/${program}.1)
      add_custom_command(OUTPUT ${man_page} DEPENDS ${program} ${PROJECT_SOURCE_DIR}/tools/man_pages.py
        COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/man_pages.py ${man_page} ${program}
                ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${program}> VERBATIM)
      list(APPEND man_pages ${man_page})
      install(FILES ${man_page} DESTINATION ${OFFPATH_MAN_DIR} COMPONENT programs)
    endif()
  endforeach()
endif()
# A wheel is not always for the Python that has them.
if(NOT OFFPATH_MAN_PYTHON)
  set(OFFPATH_MAN_PYTHON ${Python_EXECUTABLE})
endif()
if(OFFPATH_PYTHON AND OFFPATH_MAN_PYTHON)
  execute_process(COMMAND ${OFFPATH_MAN_PYTHON} -c "import numpy, pyarrow, rich, typer" ERROR_QUIET
                  RESULT_VARIABLE no_command_line)
else()
  set(no_command_line TRUE)
endif()
if(NOT no_command_line)
  set(man_page ${PROJECT_BINARY_DIR}/man/offpath.1)
  file(GLOB_RECURSE command_line CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/offpath/*.py)
  add_custom_command(OUTPUT ${man_page}
    DEPENDS ${command_line} ${PROJECT_SOURCE_DIR}/tools/man_pages.py ${PROJECT_SOURCE_DIR}/tools/docs_pages.py
    COMMAND ${OFFPATH_MAN_PYTHON} ${PROJECT_SOURCE_DIR}/tools/man_pages.py ${man_page} offpath VERBATIM)
  list(APPEND man_pages ${man_page})
  install(FILES ${man_page} DESTINATION ${OFFPATH_MAN_DIR} COMPONENT python)
endif()
if(man_pages)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
  add_custom_target(man ALL DEPENDS ${man_pages})
endif()

# The C SDK: everything that is needed to build a C, C++ or Fortran program with an installed Offpath. The shared
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
# liboffpath.so loads it from its own folder when a network address is used.
install(TARGETS offpath_openssl_module LIBRARY DESTINATION ${OFFPATH_LIB_DIR} COMPONENT sdk)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/offpath DESTINATION ${OFFPATH_INCLUDE_DIR} COMPONENT sdk)

if(NOT SKBUILD)
  set(package_dir ${OFFPATH_LIB_DIR}/cmake/offpath)
  install(EXPORT offpathTargets NAMESPACE offpath:: DESTINATION ${package_dir} COMPONENT sdk)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/offpathConfig.cmake.in
    ${PROJECT_BINARY_DIR}/sdk/offpathConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/sdk/offpathConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  file(RELATIVE_PATH offpath_prefix_from_pc /prefix/${OFFPATH_LIB_DIR}/pkgconfig /prefix)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/offpath.pc.in ${PROJECT_BINARY_DIR}/sdk/found/offpath.pc @ONLY)
  set(offpath_run_path " -Wl,-rpath,\${libdir}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/offpath.pc.in ${PROJECT_BINARY_DIR}/sdk/elsewhere/offpath.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/sdk/offpathConfig.cmake ${PROJECT_BINARY_DIR}/sdk/offpathConfigVersion.cmake
          DESTINATION ${package_dir} COMPONENT sdk)
  # The loader searches /usr and /usr/local by itself; programs that use a library elsewhere get its path.
  install(CODE "
    set(places elsewhere)
    if(CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?/?$\")
      set(places found)
    endif()
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${OFFPATH_LIB_DIR}/pkgconfig\" TYPE FILE
         FILES \"${PROJECT_BINARY_DIR}/sdk/\${places}/offpath.pc\")" COMPONENT sdk)
endif()

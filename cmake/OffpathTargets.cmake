# The functions for every folder's CMakeLists.txt.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_OPTIMIZE_DEPENDENCIES ON) # sources are not held up by libraries that only a later program is linked with
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Build targets for the programs of one kind; presets build only the programs that they run. Test programs are not part
# of `all`, so that users who only run Offpath do not wait for them.
foreach(group IN ITEMS tests tests_unit tests_conformance tests_sim tests_e2e tests_hw tests_dpdk tests_threaded fuzzers
  benchmarks md
        examples)
  add_custom_target(${group})
endforeach()
add_dependencies(tests tests_e2e)

# The flags for every target of this project.
add_library(offpath_flags INTERFACE)
target_compile_features(offpath_flags INTERFACE cxx_std_20 c_std_11)
target_include_directories(offpath_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(offpath_flags
  INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow -fvisibility=hidden>
  # Assertions name files as the repository does: programs do not tell where they were built, and clones share objects.
  $<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>
  $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
  $<$<AND:$<BOOL:${OFFPATH_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # "text" + std::string is reported as overlapping memory (GCC bug 105651).
  target_compile_options(offpath_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# At -O1 it reports the copy of a long std::string as one into its 16 bytes of short text.
set(offpath_o1_false_positives "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(offpath_o1_false_positives -Wno-array-bounds -Wno-stringop-overflow)
endif()
if(OFFPATH_SANITIZE)
  target_compile_options(offpath_flags
    INTERFACE -fsanitize=${OFFPATH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(offpath_flags INTERFACE -fsanitize=${OFFPATH_SANITIZE})
  # Each test contains the instrumented libraries, so linking is a tenth of the build. LLVM's linker is optional.
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld OFFPATH_LLD)
  if(OFFPATH_LLD)
    target_link_options(offpath_flags INTERFACE -fuse-ld=lld)
  endif()
  # Instrumentation prevents GCC from proving that variables are initialised.
  target_compile_options(offpath_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(OFFPATH_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "OFFPATH_FUZZ=ON needs clang, not ${CMAKE_CXX_COMPILER_ID}: cmake --preset asan")
  endif()
endif()

# Guides fuzzers: records the branches of the libraries that an input reached. Sources of tests, and parts that no
# fuzzer links, are compiled without it, because it slows down code.
function(offpath_guides_fuzzers target)
  if(OFFPATH_FUZZ AND NOT OFFPATH_PART)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# Programs for another processor run in its emulator, and their tests know it (src/testing/link/emulated.h).
set(offpath_test_launcher ${CMAKE_CROSSCOMPILING_EMULATOR})
set(offpath_test_environment "")
if(CMAKE_CROSSCOMPILING_EMULATOR)
  set(offpath_test_environment OFFPATH_EMULATED=1)
endif()
# ThreadSanitizer's fixed shadow addresses collide with strong address randomisation.
if(OFFPATH_SANITIZE MATCHES "thread")
  find_program(SETARCH setarch REQUIRED)
  set(offpath_test_launcher ${SETARCH} -R)
endif()
set(offpath_sanitizer_environment
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
  # Arrow's own allocator is not instrumented: memory that it passes from thread to thread would be reported as a race.
  "ARROW_DEFAULT_MEMORY_POOL=system")

# A release is compiled with -O3, which is for code that runs for each message, row or packet. COLD sources run at the
# start, for a person, or a few times a second: less optimisation saves a quarter of their compile time, and none saves
# half of it under a sanitizer.
set(offpath_options_of_cold -O0)
if(NOT OFFPATH_SANITIZE)
  set(offpath_options_of_cold $<$<CONFIG:Release>:-O1> ${offpath_o1_false_positives})
endif()

# offpath_library(NAME [SOURCES …] [COLD …] [DEPENDS …]): the static library offpath_NAME of one folder, with one of
# the two kinds of sources or both. A dependency is the short name of a folder (base, wire) or any target. If there are
# both kinds, offpath_NAME_cold compiles the cold ones.
function(offpath_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;COLD;DEPENDS")
  offpath_no_leftovers("offpath_library(${name})" "${arg_UNPARSED_ARGUMENTS}" "${arg_KEYWORDS_MISSING_VALUES}")
  set(cold)
  if(arg_COLD AND arg_SOURCES)
    set(cold offpath_${name}_cold)
    add_library(${cold} OBJECT EXCLUDE_FROM_ALL ${arg_COLD})
    offpath_link(${cold} PRIVATE ${arg_DEPENDS})
    offpath_compiled_together(${cold} 16 ${arg_COLD})
    offpath_guides_fuzzers(${cold})
    add_library(offpath_${name} STATIC EXCLUDE_FROM_ALL ${arg_SOURCES} $<TARGET_OBJECTS:${cold}>)
  else()
    add_library(offpath_${name} STATIC EXCLUDE_FROM_ALL ${arg_SOURCES} ${arg_COLD}) # built when a program needs it
    if(arg_COLD)
      set(cold offpath_${name})
    endif()
  endif()
  add_library(offpath::${name} ALIAS offpath_${name})
  if(cold)
    target_compile_options(${cold} PRIVATE ${offpath_options_of_cold})
  endif()
  if(arg_SOURCES)
    offpath_compiled_together(offpath_${name} 12 ${arg_SOURCES})
  else()
    offpath_compiled_together(offpath_${name} 16 ${arg_COLD})
  endif()
  offpath_link(offpath_${name} PUBLIC ${arg_DEPENDS})
  offpath_guides_fuzzers(offpath_${name})
endfunction()

# offpath_compiled_together(TARGET N SOURCES …): with OFFPATH_UNITY, N sources at a time. Headers take much of a
# source's compile time. CMake leaves out sources with options of their own. What one source names in an unnamed
# namespace the others may not name otherwise.
function(offpath_compiled_together target batch)
  list(LENGTH ARGN count)
  if(OFFPATH_UNITY AND count GREATER 1 AND NOT "${ARGN}" MATCHES "[.]c(;|$)")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  endif()
endfunction()

# offpath_installed(NAME [FOLDER]): installs a target of add_executable or add_library, into bin/ or FOLDER. A folder
# that sets OFFPATH_PART (benchmarks, md) has a build target and an install component of that name: its programs belong
# to neither `all` nor a full installation.
function(offpath_installed name)
  set(destination ${OFFPATH_BIN_DIR})
  if(ARGC GREATER 1)
    set(destination ${ARGV1})
  endif()
  if(OFFPATH_PART)
    install(TARGETS ${name} DESTINATION ${destination} COMPONENT ${OFFPATH_PART} EXCLUDE_FROM_ALL)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(${OFFPATH_PART} ${name})
  else()
    install(TARGETS ${name} DESTINATION ${destination} COMPONENT programs)
  endif()
endfunction()

# offpath_program(NAME SOURCES … [DEPENDS …] [NO_INSTALL] [COLD]): a program, installed into bin/. COLD: its own sources
# are (offpath_library).
function(offpath_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_INSTALL;COLD" "" "SOURCES;DEPENDS")
  offpath_no_leftovers("offpath_program(${name})" "${arg_UNPARSED_ARGUMENTS}" "${arg_KEYWORDS_MISSING_VALUES}")
  add_executable(${name} ${arg_SOURCES})
  if(arg_COLD)
    target_compile_options(${name} PRIVATE ${offpath_options_of_cold})
  endif()
  offpath_link(${name} PRIVATE ${arg_DEPENDS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
                        INSTALL_RPATH "${OFFPATH_PROGRAM_RPATH}")
  if(NOT arg_NO_INSTALL)
    offpath_installed(${name})
  endif()
endfunction()

# offpath_module(NAME FILE name FOLDER folder SOURCES … [DEPENDS …]): a shared object that others of ours load
# (src/base/module/module.h), FILE in FOLDER of the build. It exports what is named ofp_*, and nothing else.
function(offpath_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILE;FOLDER" "SOURCES;DEPENDS")
  offpath_no_leftovers("offpath_module(${name})" "${arg_UNPARSED_ARGUMENTS}" "${arg_KEYWORDS_MISSING_VALUES}")
  set(exports ${PROJECT_SOURCE_DIR}/src/base/module/exports.map)
  add_library(${name} MODULE ${arg_SOURCES})
  offpath_link(${name} PRIVATE ${arg_DEPENDS})
  target_compile_definitions(${name} PRIVATE OFFPATH_VERSION="${PROJECT_VERSION}")
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${arg_FILE} PREFIX "" SUFFIX "" LINK_DEPENDS ${exports}
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${arg_FOLDER})
  target_link_options(${name} PRIVATE -Wl,--version-script=${exports} -Wl,--as-needed -Wl,--gc-sections)
  if(NOT OFFPATH_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# The product is optimised; a unit test's own source should compile fast (half the time under a sanitizer).
set(offpath_options_of_units -O1 ${offpath_o1_false_positives})
if(OFFPATH_SANITIZE)
  set(offpath_options_of_units -O0)
endif()

# offpath_test_headers(NAME [OPTION]): compiles what every test includes, for tests with that option. It takes most of
# a test's compile time. None of it is ours, so that no change compiles it again.
function(offpath_test_headers name)
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "int main() {}\n")
  add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  offpath_link(${name} PRIVATE GTest::gtest_main GTest::gmock)
  target_compile_options(${name} PRIVATE ${ARGN})
  set(headers <gmock/gmock.h> <gtest/gtest.h> <fmt/core.h> <tl/expected.hpp> <bit> <deque> <list> <mutex> <optional>
    <random> <span> <thread> <unordered_map> <variant>)
  target_precompile_headers(${name} PRIVATE ${headers})
  # The compiled headers name the folder of their build, so each clone has its own. This tells ccache that they are the
  # same, and the tests that use them come from it.
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
  set(compiled gch)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(compiled pch)
  endif()
  set(contents "${headers} ${CMAKE_CXX_COMPILER_VERSION} ${GTest_VERSION} ${fmt_VERSION} ${tl-expected_VERSION}")
  file(CONFIGURE OUTPUT CMakeFiles/${name}.dir/cmake_pch.hxx.${compiled}.sum CONTENT "${contents}\n")
endfunction()

# A test program of so many sources or more is compiled eight at a time. They read the same headers.
set(offpath_sources_together 8)

# offpath_test(NAME SOURCES … [DEPENDS …] [LABELS unit|conformance|sim|e2e|hw threaded|dpdk] [ARGUMENTS …]
#              [TIMEOUT seconds] [FAMILIES] [LINK] [APART])
#
# A GoogleTest program, run by ctest as one test. The kind defaults to unit. Tests that run threads carry the
# label threaded as well: the tsan preset runs these. Tests of whole processes (e2e) run alone. With FAMILIES it runs a
# second time with addresses of IPv6 (src/testing/tcp/family.h), as NAME_ipv6. With LINK each of them runs once more,
# with the program behind a late link (src/testing/tcp/packet_script.h), as NAME_over_a_link. With APART many
# sources are compiled one by one nevertheless.
function(offpath_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "APART;FAMILIES;LINK" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGUMENTS")
  offpath_no_leftovers("offpath_test(${name})" "${arg_UNPARSED_ARGUMENTS}" "${arg_KEYWORDS_MISSING_VALUES}")
  if(NOT OFFPATH_TESTS)
    return()
  endif()
  if(NOT arg_LABELS OR arg_LABELS STREQUAL "threaded")
    list(PREPEND arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300) # for programs that hang: most take seconds, also on a slow machine that does much else
  endif()
  if(OFFPATH_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 6") # as many times slower, and tests run side by side
  endif()
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 6")
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_SOURCES})
  list(LENGTH arg_SOURCES count)
  if(count GREATER_EQUAL offpath_sources_together AND NOT arg_APART)
    offpath_compiled_together(${name} 8 ${arg_SOURCES})
  endif()
  offpath_link(${name} PRIVATE ${arg_DEPENDS} GTest::gtest_main GTest::gmock)
  set(headers test_headers)
  if("unit" IN_LIST arg_LABELS AND NOT "threaded" IN_LIST arg_LABELS)
    set(headers test_headers_of_units)
    target_compile_options(${name} PRIVATE ${offpath_options_of_units})
  endif()
  if(OFFPATH_UNITY)
    target_precompile_headers(${name} REUSE_FROM ${headers})
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "${offpath_test_ccache}")
    list(FILTER arg_SOURCES INCLUDE REGEX "[.]c$")
    set_source_files_properties(${arg_SOURCES} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set(runs ${name})
  if(arg_FAMILIES)
    list(APPEND runs ${name}_ipv6)
  endif()
  if(arg_LINK)
    list(TRANSFORM runs APPEND _over_a_link OUTPUT_VARIABLE linked_runs)
    list(APPEND runs ${linked_runs})
  endif()
  foreach(run IN LISTS runs)
    add_test(NAME ${run} COMMAND ${offpath_test_launcher} $<TARGET_FILE:${name}> ${arg_ARGUMENTS}
             --gtest_output=xml:${PROJECT_BINARY_DIR}/reports/${run}.xml --gtest_brief=1)
    set(environment ${offpath_sanitizer_environment} OFFPATH_BUILD_DIR=${PROJECT_BINARY_DIR}
      ${offpath_test_environment})
    if(run MATCHES "_ipv6")
      list(APPEND environment OFFPATH_TEST_FAMILY=ipv6)
    endif()
    if(run MATCHES "_over_a_link$")
      list(APPEND environment OFFPATH_TEST_LINK=late)
    endif()
    # Tests with long time limits start first, so that none runs alone at the end.
    set_tests_properties(${run} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT}
                         ENVIRONMENT "${environment}")
    if("e2e" IN_LIST arg_LABELS)
      set_tests_properties(${run} PROPERTIES RUN_SERIAL TRUE)
    endif()
  endforeach()
  add_dependencies(tests ${name})
  foreach(label IN LISTS arg_LABELS)
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

# offpath_fuzzer(NAME SOURCES … [DEPENDS …] [MAX_BYTES n]): a libFuzzer program, built when OFFPATH_FUZZ is on.
# Inputs that once failed are in NAME_corpus/ beside its first source and run first.
function(offpath_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MAX_BYTES" "SOURCES;DEPENDS")
  offpath_no_leftovers("offpath_fuzzer(${name})" "${arg_UNPARSED_ARGUMENTS}" "${arg_KEYWORDS_MISSING_VALUES}")
  if(NOT OFFPATH_FUZZ)
    return()
  endif()
  if(NOT arg_MAX_BYTES)
    set(arg_MAX_BYTES 4096)
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_SOURCES})
  offpath_link(${name} PRIVATE ${arg_DEPENDS})
  offpath_guides_fuzzers(${name})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  set(found ${PROJECT_BINARY_DIR}/fuzz/${name}_found)
  file(MAKE_DIRECTORY ${found})
  set(corpora ${found})
  list(GET arg_SOURCES 0 source)
  cmake_path(ABSOLUTE_PATH source)
  cmake_path(GET source PARENT_PATH folder)
  if(EXISTS ${folder}/${name}_corpus)
    list(APPEND corpora ${folder}/${name}_corpus)
  endif()
  math(EXPR timeout "${OFFPATH_FUZZ_SECONDS} + 300") # and the corpora, which are not counted
  add_test(NAME ${name} COMMAND ${name} -max_total_time=${OFFPATH_FUZZ_SECONDS} -seed=${OFFPATH_FUZZ_SEED}
    -max_len=${arg_MAX_BYTES}
           -timeout=10 -rss_limit_mb=2048 -artifact_prefix=${found}/crash- ${corpora})
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT ${timeout} ENVIRONMENT "${offpath_sanitizer_environment}")
  add_dependencies(fuzzers ${name})
endfunction()

# offpath_python_module(NAME SOURCES … [DEPENDS …]): a nanobind extension module inside the package offpath.
function(offpath_python_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  offpath_no_leftovers("offpath_python_module(${name})" "${arg_UNPARSED_ARGUMENTS}" "${arg_KEYWORDS_MISSING_VALUES}")
  if(NOT OFFPATH_PYTHON)
    return()
  endif()
  if(NOT COMMAND nanobind_add_module)
    offpath_ask_python(nanobind_ROOT "import nanobind; print(nanobind.cmake_dir())")
    find_package(nanobind CONFIG REQUIRED NO_CMAKE_FIND_ROOT_PATH) # a program of this machine, like Python
  endif()
  set(stable_abi)
  if(SKBUILD_SABI_COMPONENT)
    set(stable_abi STABLE_ABI)
  endif()
  nanobind_add_module(${name} NB_STATIC ${stable_abi} NOMINSIZE NB_SUPPRESS_WARNINGS ${arg_SOURCES})
  set(nanobind nanobind-static)
  if(TARGET nanobind-static-abi3)
    set(nanobind nanobind-static-abi3)
    # nanobind's headers print to stderr, and the stable ABI's Python.h does not include stdio.h.
    target_compile_options(nanobind-static-abi3 PUBLIC -include stdio.h)
  endif()
  offpath_link(${name} PRIVATE ${arg_DEPENDS})
  add_library(${name}_flags INTERFACE)
  target_compile_options(${name}_flags INTERFACE -Wno-shadow) # nanobind's headers shadow members
  target_link_libraries(${name} PRIVATE ${name}_flags)        # after the project's -Wshadow
  if(OFFPATH_UNITY) # of nanobind's own sources, too: they know it as nb_combined.cpp
    set_target_properties(${name} ${nanobind} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/offpath
                        INSTALL_RPATH "${OFFPATH_MODULE_RPATH}")
  install(TARGETS ${name} LIBRARY DESTINATION ${OFFPATH_SITE_DIR}/offpath COMPONENT python)
endfunction()

# Links by short folder name if there is such a library, and compiles with the project's flags.
function(offpath_link target scope)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:offpath_flags>)
  # Only fmt's headers: src/base/format.cc compiles its sources, where the headers have not everything.
  target_include_directories(${target} SYSTEM ${scope}
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(${target} ${scope} ${OFFPATH_FMT_DEFINITIONS})
  target_link_libraries(${target} ${scope} tl::expected Threads::Threads)
  foreach(dependency IN LISTS ARGN)
    # src/testing comes after the folders whose tests use it.
    if(TARGET offpath_${dependency} OR dependency MATCHES "^testing_")
      target_link_libraries(${target} ${scope} offpath_${dependency})
    elseif(TARGET ${dependency})
      target_link_libraries(${target} ${scope} ${dependency})
    else()
      message(FATAL_ERROR "${target} DEPENDS on ${dependency}: neither a folder listed before it nor a target")
    endif()
  endforeach()
endfunction()

function(offpath_no_leftovers call leftovers missing)
  if(leftovers OR missing)
    message(FATAL_ERROR "${call}: unknown arguments '${leftovers}', keywords without values '${missing}'")
  endif()
endfunction()

if(OFFPATH_TESTS AND OFFPATH_UNITY)
  offpath_test_headers(test_headers)
  offpath_test_headers(test_headers_of_units ${offpath_options_of_units})
  set(offpath_test_ccache ${CMAKE_CXX_COMPILER_LAUNCHER})
  if(CCACHE)
    find_program(ENV_PROGRAM env REQUIRED)
    set(offpath_test_ccache ${ENV_PROGRAM} CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 ${CCACHE})
  endif()
endif()

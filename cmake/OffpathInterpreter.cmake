# The Python interpreter: the given one, else the one of the clone's environment, else the one on the PATH. Its
# environment provides libarrow (pyarrow), nanobind and the programs of the end-to-end tests.
if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python)
endif()
set(Python_FIND_VIRTUALENV FIRST)
set(python_components Interpreter)
if(OFFPATH_PYTHON)
  # scikit-build-core names the headers of the stable ABI if the wheel is to have it and this Python does.
  list(APPEND python_components Development.Module ${SKBUILD_SABI_COMPONENT})
endif()
find_package(Python 3.10 COMPONENTS ${python_components})
if(OFFPATH_PYTHON AND NOT Python_FOUND)
  message(FATAL_ERROR "OFFPATH_PYTHON=ON needs Python 3.10 or newer with its headers (Debian: python3-dev); "
                      "install them, run ./dev build, or set OFFPATH_PYTHON=OFF")
endif()

# offpath_ask_python(VARIABLE CODE): the output of CODE, or an empty string.
function(offpath_ask_python variable code)
  set(answer "")
  if(Python_Interpreter_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -c "${code}" OUTPUT_VARIABLE answer ERROR_QUIET
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  set(${variable} "${answer}" PARENT_SCOPE)
endfunction()

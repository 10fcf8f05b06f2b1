# Finds the Python that runs relaybuild; compiles nothing.
cmake_policy(VERSION 3.20...3.31)

# Sets `result` to the command that relaybuild is, as a list. An error where no Python has what it needs.
function(_relaybuild_command result)
  set(run "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run.py")
  get_property(python GLOBAL PROPERTY _relaybuild_python)
  if(NOT python)
    _relaybuild_pythons("${CMAKE_CURRENT_FUNCTION_LIST_DIR}" pythons)
    include("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/RelaybuildPackage.cmake")
    set(tried "")
    foreach(each IN LISTS pythons)
      _relaybuild_python_lacks("${each}" "${_relaybuild_package}" lacks)
      if(lacks STREQUAL "")
        set(python "${each}")
        break()
      endif()
      string(APPEND tried "\n  ${each}: ${lacks}")
    endforeach()
    if(NOT python)
      message(FATAL_ERROR
        "relaybuild_add_model(): no Python was found that runs relaybuild.${tried}\n"
        "Name one that has relaybuild's dependencies: -D RELAYBUILD_PYTHON=/path/to/python")
    endif()
    set_property(GLOBAL PROPERTY _relaybuild_python "${python}")
  endif()
  set(${result} "${python}" "${run}" PARENT_SCOPE)
endfunction()

# The interpreters that may run a relaybuild whose CMake package is in `folder`: that of the environment in which it is
# installed comes first, whether or not this environment is active, and whatever it was called when it was made.
function(_relaybuild_pythons folder result)
  if(RELAYBUILD_PYTHON)
    set(${result} "${RELAYBUILD_PYTHON}" PARENT_SCOPE)
    return()
  endif()
  set(named python3 python)
  set(found "")
  if(folder MATCHES "^(.*)/lib[^/]*/(python[0-9.]+)/[^/]*-packages/relaybuild/_share/cmake$")
    list(PREPEND named "${CMAKE_MATCH_2}")
    list(TRANSFORM named PREPEND "${CMAKE_MATCH_1}/bin/" OUTPUT_VARIABLE found)
  elseif(folder MATCHES "^(.*)/Lib/site-packages/relaybuild/_share/cmake$")
    set(found "${CMAKE_MATCH_1}/Scripts/python.exe" "${CMAKE_MATCH_1}/python.exe")
  endif()
  list(APPEND found "${Python3_EXECUTABLE}" "${Python_EXECUTABLE}")
  foreach(name IN LISTS named)
    find_program(program NAMES "${name}" NO_CACHE NO_CMAKE_FIND_ROOT_PATH)
    if(program)
      list(APPEND found "${program}")
    endif()
    unset(program)
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(existing "")
  foreach(each IN LISTS found)
    if(EXISTS "${each}")
      list(APPEND existing "${each}")
    endif()
  endforeach()
  set(${result} "${existing}" PARENT_SCOPE)
endfunction()

# Sets `result` to what keeps an interpreter from running relaybuild; empty where nothing does.
#
# Models are compiled again when a folder of relaybuild's has changed. So the folders in which Python keeps what it has
# compiled are made here, and not while a model is compiled for the first time.
function(_relaybuild_python_lacks python package result)
  set(code "
import importlib.util, os, sys
if sys.version_info < (3, 10): sys.exit('is Python ' + sys.version.split()[0] + ', expected 3.10 or later')
missing = [name for name in ('click', 'numpy', 'onnx') if importlib.util.find_spec(name) is None]
if missing: sys.exit('has no ' + ', '.join(missing))
for folder, _, names in os.walk(sys.argv[1]) if not (sys.dont_write_bytecode or sys.pycache_prefix) else ():
    try:
        if any(name.endswith('.py') for name in names): os.makedirs(os.path.join(folder, '__pycache__'), exist_ok=True)
    except OSError: pass
")
  execute_process(COMMAND "${python}" -c "${code}" "${package}"
    RESULT_VARIABLE status ERROR_VARIABLE said OUTPUT_QUIET ERROR_STRIP_TRAILING_WHITESPACE)
  if(status EQUAL 0)
    set(said "")
  elseif(said STREQUAL "")
    set(said "${status}")
  endif()
  set(${result} "${said}" PARENT_SCOPE)
endfunction()

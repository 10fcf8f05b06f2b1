# What a backend's CMake module says of itself. A module is read when its flag is not off; it ends in one call of
# relaybuild_backend() or of relaybuild_backend_missing().
#
# While a module is read, these describe what the user asked for:
#   RELAYBUILD_MODE   ON, AUTO or PATH
#   RELAYBUILD_PATH   the folder or file that the flag names, absolute; empty unless the mode is PATH
# and these describe the Python environment that relaybuild runs in, whose packages may bring libraries:
#   RELAYBUILD_PYTHON_SITES     its folders of packages
#   RELAYBUILD_PYTHON_PREFIXES  folders with the lib/ and include/ that packages install into

# relaybuild_flag_choices(<flag> <choice>...)
#
# Which values the flag takes: OFF, ON, AUTO, PATH. Any other is the user's mistake, and ends the module.
macro(relaybuild_flag_choices flag)
  _relaybuild_check_choice(_relaybuild_wrong ${flag} ${ARGN})
  if(_relaybuild_wrong)
    _relaybuild_report_error(${flag} "${_relaybuild_wrong}")
    return()
  endif()
endmacro()

# relaybuild_backend(<name> FLAG <flag> [INCLUDE_DIRECTORIES <folder>...] [LIBRARIES <library>...]
#                    [DEFINITIONS <NAME|NAME=VALUE>...] [VERSION <version>])
#
# The backend is on; this is what a model's library with regions of it needs. A library is an absolute file or a word for
# the linker (-lfoo); the folder of a shared one that the loader does not search is made known to it.
function(relaybuild_backend name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FLAG;VERSION" "INCLUDE_DIRECTORIES;LIBRARIES;DEFINITIONS")
  _relaybuild_check_arguments(relaybuild_backend "${name}" "${arg_FLAG}" "${arg_UNPARSED_ARGUMENTS}")
  _relaybuild_with_run_paths(libraries ${arg_LIBRARIES})
  # Compilers search these anyway, and named once more they may come in the wrong order.
  list(REMOVE_ITEM arg_INCLUDE_DIRECTORIES /usr/include "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}")
  set(json "{}")
  string(JSON json SET "${json}" enabled true)
  _relaybuild_json_set(json version "${arg_VERSION}")
  _relaybuild_json_set_list(json include_dirs "${arg_INCLUDE_DIRECTORIES}")
  _relaybuild_json_set_list(json libraries "${libraries}")
  _relaybuild_json_set_list(json definitions "${arg_DEFINITIONS}")
  set_property(GLOBAL PROPERTY RELAYBUILD_RESULT_${arg_FLAG} "${json}")
endfunction()

# relaybuild_backend_missing(<name> FLAG <flag> MESSAGE <sentence> [INSTALL <command>...])
#
# The backend cannot be on: an error if the user asked for it, a remark if the flag is AUTO.
function(relaybuild_backend_missing name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FLAG;MESSAGE" "INSTALL")
  _relaybuild_check_arguments(relaybuild_backend_missing "${name}" "${arg_FLAG}" "${arg_UNPARSED_ARGUMENTS}")
  set(message "${arg_MESSAGE}")
  if(arg_INSTALL)
    list(TRANSFORM arg_INSTALL REPLACE "(.+)" "'\\1'")
    list(JOIN arg_INSTALL " or " commands)
    string(APPEND message "; run ${commands}, or name its place with ${arg_FLAG}=/path")
  endif()
  if(NOT RELAYBUILD_MODE STREQUAL "AUTO")
    _relaybuild_report_error(${arg_FLAG} "${message}")
  endif()
  set(json "{}")
  string(JSON json SET "${json}" enabled false)
  _relaybuild_json_set(json message "${message}")
  set_property(GLOBAL PROPERTY RELAYBUILD_RESULT_${arg_FLAG} "${json}")
endfunction()

# relaybuild_find_library(<prefix> HEADERS <header>... LIBRARIES <name>... [WHEELS <package>...]
#                         [PATH_SUFFIXES <folder>...] [CHECK <function>])
#
# Looks for one library and a header of it: at the path that the flag names and nowhere else, or in the Python environment
# and then where CMake looks. WHEELS are packages that keep lib/ and include/ in their own folder. CHECK names a function
# that is called as <function>(<result> <include folder> <library>) and sets the variable <result> of its caller to why
# what was found cannot be used, or to an empty text; the search goes on after what cannot be used.
#
# Sets <prefix>_FOUND, <prefix>_INCLUDE_DIR, <prefix>_LIBRARY, and <prefix>_REASON if nothing was found.
function(relaybuild_find_library prefix)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CHECK" "HEADERS;LIBRARIES;WHEELS;PATH_SUFFIXES")
  set(found FALSE)
  set(reason "")
  _relaybuild_search_roots(roots "${arg_WHEELS}")
  foreach(root IN LISTS roots)
    _relaybuild_search("${root}" library include_dir)
    if(library AND include_dir)
      set(wrong "")
      if(arg_CHECK)
        cmake_language(CALL ${arg_CHECK} wrong "${include_dir}" "${library}")
      endif()
      if(wrong STREQUAL "")
        set(found TRUE)
        break()
      endif()
      set(reason "${wrong}")
    endif()
  endforeach()
  if(NOT found AND reason STREQUAL "")
    _relaybuild_explain_absence(reason "${library}" "${include_dir}")
  endif()
  set(${prefix}_FOUND ${found} PARENT_SCOPE)
  set(${prefix}_LIBRARY "${library}" PARENT_SCOPE)
  set(${prefix}_INCLUDE_DIR "${include_dir}" PARENT_SCOPE)
  set(${prefix}_REASON "${reason}" PARENT_SCOPE)
endfunction()

# Says what of a library and its header is not there. Reads arg_* of the caller.
function(_relaybuild_explain_absence result library include_dir)
  list(JOIN arg_HEADERS "' or '" headers)
  list(JOIN arg_LIBRARIES "' or '" libraries)
  set(where "")
  if(RELAYBUILD_MODE STREQUAL "PATH")
    set(where " below ${RELAYBUILD_PATH}")
  endif()
  if(library)
    set(reason "the library ${library} is there, but no header '${headers}'${where}")
  elseif(include_dir)
    set(reason "its header is in ${include_dir}, but there is no library '${libraries}'${where}")
  else()
    set(reason "there is neither a library '${libraries}' nor a header '${headers}'${where}")
  endif()
  set(${result} "${reason}" PARENT_SCOPE)
endfunction()

# The places to search, the first in which all is found counting; SYSTEM stands for where CMake looks.
function(_relaybuild_search_roots result wheels)
  if(RELAYBUILD_MODE STREQUAL "PATH")
    set(${result} "${RELAYBUILD_PATH}" PARENT_SCOPE)
    return()
  endif()
  set(roots "")
  foreach(site IN LISTS RELAYBUILD_PYTHON_SITES)
    foreach(wheel IN LISTS wheels)
      list(APPEND roots "${site}/${wheel}")
    endforeach()
  endforeach()
  set(${result} ${roots} ${RELAYBUILD_PYTHON_PREFIXES} SYSTEM PARENT_SCOPE)
endfunction()

# One place: sets the two variables in the caller, to an empty text for what is not there. Reads arg_* of the caller.
function(_relaybuild_search root library_result include_result)
  set(library "")
  set(include_dir "")
  if(root STREQUAL "SYSTEM")
    _relaybuild_find(library find_library "${arg_LIBRARIES}" "" "${arg_PATH_SUFFIXES}")
    _relaybuild_find(include_dir find_path "${arg_HEADERS}" "" "${arg_PATH_SUFFIXES}")
  elseif(IS_DIRECTORY "${root}")
    set(scope PATHS "${root}" NO_DEFAULT_PATH)
    _relaybuild_below(folders "lib;lib64;lib/${CMAKE_LIBRARY_ARCHITECTURE}")
    _relaybuild_find(library find_library "${arg_LIBRARIES}" "${scope}" "${folders}")
    _relaybuild_below(folders "include;include/${CMAKE_LIBRARY_ARCHITECTURE}")
    _relaybuild_find(include_dir find_path "${arg_HEADERS}" "${scope}" "${folders}")
  elseif(EXISTS "${root}")
    # A library by its file: its headers are beside its folder, or else where CMake looks.
    set(library "${root}")
    get_filename_component(folder "${root}" DIRECTORY)
    get_filename_component(parent "${folder}" DIRECTORY)
    _relaybuild_below(folders "include;include/${CMAKE_LIBRARY_ARCHITECTURE}")
    set(scope PATHS "${parent}" "${folder}" NO_DEFAULT_PATH)
    _relaybuild_find(include_dir find_path "${arg_HEADERS}" "${scope}" "${folders}")
    if(NOT include_dir)
      _relaybuild_find(include_dir find_path "${arg_HEADERS}" "" "${arg_PATH_SUFFIXES}")
    endif()
  endif()
  set(${library_result} "${library}" PARENT_SCOPE)
  set(${include_result} "${include_dir}" PARENT_SCOPE)
endfunction()

# Folders of an installation, and those of the caller's PATH_SUFFIXES in each.
function(_relaybuild_below result folders)
  set(all "")
  foreach(folder IN LISTS folders)
    list(APPEND all "${folder}")
    foreach(suffix IN LISTS arg_PATH_SUFFIXES)
      list(APPEND all "${folder}/${suffix}")
    endforeach()
  endforeach()
  set(${result} "${all}" PARENT_SCOPE)
endfunction()

# A search whose outcome is not kept in CMake's cache, where the next one would find it.
function(_relaybuild_find result command names scope suffixes)
  unset(_relaybuild_found CACHE)
  if(command STREQUAL "find_library")
    find_library(_relaybuild_found NAMES ${names} ${scope} PATH_SUFFIXES ${suffixes})
  else()
    find_path(_relaybuild_found NAMES ${names} ${scope} PATH_SUFFIXES ${suffixes})
  endif()
  set(found "${_relaybuild_found}")
  unset(_relaybuild_found CACHE)
  if(NOT found)
    set(found "")
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Libraries, each followed by what makes the loader find it where it was found at build time.
function(_relaybuild_with_run_paths result)
  set(words "")
  foreach(library IN LISTS ARGN)
    list(APPEND words "${library}")
    if(IS_ABSOLUTE "${library}" AND library MATCHES "\\.(so(\\.[0-9.]+)?|dylib)$")
      get_filename_component(folder "${library}" DIRECTORY)
      if(NOT folder MATCHES "^(/usr(/local)?)?/lib(32|64|/${CMAKE_LIBRARY_ARCHITECTURE})?$")
        list(APPEND words "-Wl,-rpath,${folder}")
      endif()
    endif()
  endforeach()
  set(${result} "${words}" PARENT_SCOPE)
endfunction()

# Sets the mode and the path of a flag's value in the caller. Relative paths start at RELAYBUILD_CONFIG_DIR.
function(_relaybuild_classify value mode_result path_result)
  string(TOUPPER "${value}" upper)
  set(path "")
  if(upper STREQUAL "AUTO")
    set(mode AUTO)
  elseif(upper MATCHES "^(1|ON|YES|TRUE|Y)$")
    set(mode ON)
  elseif(upper MATCHES "^(|0|OFF|NO|FALSE|N|IGNORE|NOTFOUND|.*-NOTFOUND)$")
    set(mode OFF)
  else()
    set(mode PATH)
    get_filename_component(path "${value}" ABSOLUTE BASE_DIR "${RELAYBUILD_CONFIG_DIR}")
  endif()
  set(${mode_result} ${mode} PARENT_SCOPE)
  set(${path_result} "${path}" PARENT_SCOPE)
endfunction()

# Sets `result` to what is wrong with the value of `flag`, or to an empty text.
function(_relaybuild_check_choice result flag)
  set(wrong "")
  set(choices ${ARGN})
  list(TRANSFORM choices REPLACE "^PATH$" "a path")
  list(JOIN choices ", " expected)
  string(REGEX REPLACE ", ([^,]+)$" " or \\1" expected "${expected}")
  if(NOT RELAYBUILD_MODE IN_LIST ARGN)
    set(wrong "found '${${flag}}', expected ${expected}")
  elseif(RELAYBUILD_MODE STREQUAL "PATH" AND NOT EXISTS "${RELAYBUILD_PATH}")
    set(wrong "found '${${flag}}', which is no file or folder; expected ${expected}")
  endif()
  set(${result} "${wrong}" PARENT_SCOPE)
endfunction()

function(_relaybuild_check_arguments command name flag unparsed)
  if(flag STREQUAL "")
    message(FATAL_ERROR "${command}(${name}) names no FLAG")
  endif()
  if(unparsed)
    message(FATAL_ERROR "${command}(${name}) does not know the arguments '${unparsed}'")
  endif()
endfunction()

function(_relaybuild_report_error flag message)
  set(json "{}")
  _relaybuild_json_set(json flag "${flag}")
  _relaybuild_json_set(json message "${message}")
  get_property(errors GLOBAL PROPERTY RELAYBUILD_ERRORS)
  _relaybuild_json_append(errors "${json}")
  set_property(GLOBAL PROPERTY RELAYBUILD_ERRORS "${errors}")
endfunction()

# A text as JSON.
function(_relaybuild_json_text result text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n" text "${text}")
  string(REPLACE "\t" "\\t" text "${text}")
  set(${result} "\"${text}\"" PARENT_SCOPE)
endfunction()

# The next three change a variable of the caller by its name, so that none of their own may have an ordinary one.

# Sets a member of the object in the variable `_object` to a text.
function(_relaybuild_json_set _object _member _text)
  _relaybuild_json_text(_quoted "${_text}")
  string(JSON _json SET "${${_object}}" "${_member}" "${_quoted}")
  set(${_object} "${_json}" PARENT_SCOPE)
endfunction()

# Sets a member of the object in the variable `_object` to a list of texts.
function(_relaybuild_json_set_list _object _member _items)
  set(_array "[]")
  foreach(_item IN LISTS _items)
    _relaybuild_json_text(_quoted "${_item}")
    _relaybuild_json_append(_array "${_quoted}")
  endforeach()
  string(JSON _json SET "${${_object}}" "${_member}" "${_array}")
  set(${_object} "${_json}" PARENT_SCOPE)
endfunction()

# Appends a value to the array in the variable `_target`; an empty text is an empty array.
function(_relaybuild_json_append _target _value)
  set(_json "${${_target}}")
  if(_json STREQUAL "")
    set(_json "[]")
  endif()
  string(JSON _length LENGTH "${_json}")
  string(JSON _json SET "${_json}" ${_length} "${_value}")
  set(${_target} "${_json}" PARENT_SCOPE)
endfunction()

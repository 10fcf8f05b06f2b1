# Defines relaybuild_add_model(), which makes a library of a model; knows how CMake builds, and no model.
cmake_policy(VERSION 3.20...3.31)

include("${CMAKE_CURRENT_LIST_DIR}/RelaybuildPython.cmake")

# relaybuild has linked the library when CMake's turn comes: to link it means to put it in its place. For all folders.
set(CMAKE_RELAYBUILD_CREATE_SHARED_LIBRARY
  "\"${CMAKE_COMMAND}\" -P \"${CMAKE_CURRENT_LIST_DIR}/RelaybuildPlaceLibrary.cmake\" <OBJECTS> <TARGET>"
  CACHE INTERNAL "The rule by which libraries of models get to their place")

if(NOT APPLE)
  # tells CMake that such libraries have names for loaders, and so may have versions; relaybuild writes the name
  set(CMAKE_SHARED_LIBRARY_SONAME_RELAYBUILD_FLAG "-Wl,-soname,"
    CACHE INTERNAL "How a library of a model is given its name")
endif()

#[[
relaybuild_add_model(<target> MODEL <file>
  [NAME <name>]             what the functions and the header are called; default: the target's name
  [SHAPES <input=1,3,8,8>...]   shapes of inputs that the model leaves open
  [TARGET_ISA <isa>]        --target of `relaybuild compile`
  [CONFIG <config.cmake>]   the script that switches backends on; default: none is on
  [OPTIONS <option>...]     further options of `relaybuild compile`
  [SHARED | STATIC | OBJECT])   default: SHARED, unless BUILD_SHARED_LIBS is set and off

Adds a library that is compiled from a model, with the header <name>.h on the include path of who links it. It is
compiled again when the model, its data, the configuration, a plug-in or relaybuild changed. Paths are relative to the
current source folder, in which relaybuild runs.
]]
function(relaybuild_add_model target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SHARED;STATIC;OBJECT" "MODEL;NAME;TARGET_ISA;CONFIG" "SHAPES;OPTIONS")
  _relaybuild_check_arguments("${target}")
  _relaybuild_check_system("${target}")
  _relaybuild_kind(kind)
  _relaybuild_file("${target}" MODEL "${arg_MODEL}" model)
  # relaybuild's own switches nothing on, and one of the source folder that nobody names is not taken
  get_filename_component(config "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../config.cmake" ABSOLUTE)
  if(arg_CONFIG)
    _relaybuild_file("${target}" CONFIG "${arg_CONFIG}" config)
  endif()
  set(name "${arg_NAME}")
  if(name STREQUAL "")
    string(MAKE_C_IDENTIFIER "${target}" name)
  endif()

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/relaybuild/${target}")
  set(header "${folder}/${name}.h")
  if(kind STREQUAL "SHARED")
    set(object "${folder}/${name}.so")
    set(emit header)
  else()
    set(object "${folder}/${name}.o")
    set(emit object)
  endif()
  _relaybuild_arguments("${target}" arguments)
  _relaybuild_compile("${target}")
  _relaybuild_library("${target}")
endfunction()

# The functions below see the variables of who calls them.

function(_relaybuild_check_arguments target)
  set(where "relaybuild_add_model(${target})")
  if(TARGET "${target}")
    message(FATAL_ERROR "${where}: there is a target of this name already, expected another name")
  endif()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${where}: found '${arg_UNPARSED_ARGUMENTS}', expected MODEL, NAME, SHAPES, TARGET_ISA, "
      "CONFIG, OPTIONS, or one of SHARED, STATIC, OBJECT")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${where}: ${arg_KEYWORDS_MISSING_VALUES} has no value")
  endif()
  if("${arg_MODEL}" STREQUAL "")
    message(FATAL_ERROR "${where}: no model is named, expected MODEL file.onnx")
  endif()
  if(arg_NAME AND NOT arg_NAME MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    message(FATAL_ERROR "${where}: NAME is '${arg_NAME}', expected an identifier of C, which functions begin with")
  endif()
endfunction()

# What cannot work where a project is cross-compiled: then the compiler alone tells what is compiled for.
function(_relaybuild_check_system target)
  set(where "relaybuild_add_model(${target})")
  if(NOT CMAKE_CROSSCOMPILING)
    return()
  endif()
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    message(FATAL_ERROR "${where}: the project is compiled for ${CMAKE_SYSTEM_NAME} on ${CMAKE_SYSTEM_PROCESSOR}, "
      "expected Linux: other systems are compiled for on themselves alone")
  endif()
  if(NOT CMAKE_C_COMPILER_ID MATCHES "^(GNU|Clang)$")
    message(FATAL_ERROR "${where}: the project is cross-compiled by '${CMAKE_C_COMPILER_ID}', expected GCC or Clang as "
      "compiler of C")
  endif()
  if(NOT arg_TARGET_ISA)
    message(FATAL_ERROR "${where}: the project is cross-compiled for ${CMAKE_SYSTEM_PROCESSOR}: name its instructions, "
      "as in TARGET_ISA c")
  endif()
endfunction()

# Sets `result` to SHARED, STATIC or OBJECT.
function(_relaybuild_kind result)
  set(kinds "")
  foreach(each IN ITEMS SHARED STATIC OBJECT)
    if(arg_${each})
      list(APPEND kinds ${each})
    endif()
  endforeach()
  list(LENGTH kinds count)
  if(count GREATER 1)
    message(FATAL_ERROR "relaybuild_add_model(${target}): found '${kinds}', expected one of them")
  elseif(count EQUAL 0)
    set(kinds SHARED)
    if(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS)
      set(kinds STATIC)
    endif()
  endif()
  set(${result} "${kinds}" PARENT_SCOPE)
endfunction()

# Sets `result` to the absolute path of a file that is there, or will be made.
function(_relaybuild_file target keyword path result)
  get_filename_component(file "${path}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  get_source_file_property(is_generated "${file}" GENERATED)
  if(NOT is_generated AND (NOT EXISTS "${file}" OR IS_DIRECTORY "${file}"))
    message(FATAL_ERROR "relaybuild_add_model(${target}): there is no file '${file}', which ${keyword} names")
  endif()
  set(${result} "${file}" PARENT_SCOPE)
endfunction()

# Sets `result` to the command that compiles the model, and `pool` to where ninja runs it.
function(_relaybuild_arguments target result)
  _relaybuild_command(command)
  _relaybuild_turn(pool turn)
  list(APPEND command ${turn} compile "${model}" -o "${object}" --name "${name}" --depfile "${folder}/${name}.d" --emit ${emit}
    --config "${config}")
  foreach(shape IN LISTS arg_SHAPES)
    list(APPEND command --shape "${shape}")
  endforeach()
  if(NOT kind STREQUAL "SHARED")
    list(APPEND command --link-file "${folder}/${name}.link")
  endif()
  if(arg_TARGET_ISA)
    list(APPEND command --target "${arg_TARGET_ISA}")
  endif()
  _relaybuild_compiler(compiler environment)
  if(compiler)
    list(APPEND command --cc "${compiler}")
  endif()
  list(APPEND command ${arg_OPTIONS})
  if(kind STREQUAL "SHARED" AND NOT APPLE)
    list(APPEND command --soname "$<TARGET_SONAME_FILE_NAME:${target}>")
  endif()
  if(environment)
    list(PREPEND command "${CMAKE_COMMAND}" -E env ${environment})
  endif()
  set(${result} "${command}" PARENT_SCOPE)
  set(pool "${pool}" PARENT_SCOPE)
endfunction()

# At most RELAYBUILD_PARALLEL_MODELS models are compiled at a time, each by as many compilers as there are processors. Sets
# `pool` to what a command of ninja's says, which has pools, or `turn` to options of relaybuild that do the same.
function(_relaybuild_turn pool turn)
  set(depth 1)
  if(NOT "${RELAYBUILD_PARALLEL_MODELS}" STREQUAL "")
    set(depth "${RELAYBUILD_PARALLEL_MODELS}")
  endif()
  if(NOT depth MATCHES "^[1-9][0-9]*$")
    message(FATAL_ERROR "relaybuild_add_model(${target}): RELAYBUILD_PARALLEL_MODELS is '${depth}', expected a number "
      "of models, 1 or more")
  endif()
  get_property(number GLOBAL PROPERTY _relaybuild_models)
  math(EXPR number "0${number} + 1")
  set_property(GLOBAL PROPERTY _relaybuild_models ${number})
  set(${pool} "" PARENT_SCOPE)
  set(${turn} "" PARENT_SCOPE)
  if(NOT CMAKE_GENERATOR MATCHES "Ninja")
    math(EXPR number "${number} % ${depth}")
    set(${turn} --in-turn "${CMAKE_BINARY_DIR}/CMakeFiles/relaybuild-${number}.lock" PARENT_SCOPE)
    return()
  endif()
  set(${pool} JOB_POOL relaybuild PARENT_SCOPE)
  if(number EQUAL 1)
    # the project may say which pools it has at any time, and in two ways, of which CMake obeys one
    cmake_language(EVAL CODE
      "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]] CALL _relaybuild_add_pool ${depth})")
  endif()
endfunction()

function(_relaybuild_add_pool depth)
  get_property(pools GLOBAL PROPERTY JOB_POOLS)
  if(NOT pools)
    set(pools ${CMAKE_JOB_POOLS})
  endif()
  if(NOT pools MATCHES "(^|;)relaybuild=")
    list(APPEND pools "relaybuild=${depth}")
  endif()
  set_property(GLOBAL PROPERTY JOB_POOLS "${pools}")
endfunction()

# The C compiler of the project, where relaybuild understands it, and the variables that tell of the C++ compiler and of
# what compilations go through.
function(_relaybuild_compiler compiler environment)
  set(understood GNU Clang AppleClang)
  set(variables "")
  set(found "")
  if(CMAKE_C_COMPILER AND CMAKE_C_COMPILER_ID IN_LIST understood)
    set(words "${CMAKE_C_COMPILER}")
    if(CMAKE_C_COMPILER_TARGET AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
      list(APPEND words "--target=${CMAKE_C_COMPILER_TARGET}")
    endif()
    if(CMAKE_SYSROOT)
      list(APPEND words "--sysroot=${CMAKE_SYSROOT}")
    endif()
    _relaybuild_quoted(found ${words})
  endif()
  if(CMAKE_CXX_COMPILER AND CMAKE_CXX_COMPILER_ID IN_LIST understood)
    _relaybuild_quoted(cxx "${CMAKE_CXX_COMPILER}")
    list(APPEND variables "CXX=${cxx}")
  endif()
  set(launcher "${CMAKE_C_COMPILER_LAUNCHER}")
  if(RELAYBUILD_COMPILER_LAUNCHER)
    set(launcher "${RELAYBUILD_COMPILER_LAUNCHER}")
  endif()
  if(launcher)
    _relaybuild_quoted(words ${launcher})
    list(APPEND variables "RELAYBUILD_COMPILER_LAUNCHER=${words}")
  endif()
  set(${compiler} "${found}" PARENT_SCOPE)
  set(${environment} "${variables}" PARENT_SCOPE)
endfunction()

# Words as one text in which a shell would find them again.
function(_relaybuild_quoted result)
  set(text "")
  foreach(word IN LISTS ARGN)
    if(NOT word MATCHES "^[A-Za-z0-9_./+=:,@%-]+$")
      string(REPLACE "'" "'\"'\"'" word "${word}")
      set(word "'${word}'")
    endif()
    string(APPEND text " ${word}")
  endforeach()
  string(STRIP "${text}" text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# The rules that make object and header.
function(_relaybuild_compile target)
  file(MAKE_DIRECTORY "${folder}")
  set(script "")
  if(NOT CMAKE_GENERATOR MATCHES "Ninja")
    # make does not see that a command has become another one
    set(script "${folder}/command.txt")
    file(GENERATE OUTPUT "${script}" CONTENT "${arguments}")
  endif()
  file(RELATIVE_PATH shown "${CMAKE_SOURCE_DIR}" "${model}")
  set(common DEPENDS "${model}" ${script} DEPFILE "${folder}/${name}.d"
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Compiling the model ${shown}" VERBATIM COMMAND_EXPAND_LISTS)
  if(CMAKE_GENERATOR MATCHES "Ninja")
    # ninja looks at what a command has made, and goes on only with what changed
    add_custom_command(OUTPUT "${object}" "${header}" COMMAND ${arguments} ${common} ${pool})
    return()
  endif()
  # make takes what depends on a file whose command ran to be old, unless that command left it alone
  set(stamp "${folder}/${name}.stamp")
  add_custom_command(OUTPUT "${stamp}"
    COMMAND ${arguments} --depfile-target "${stamp}" COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}" ${common})
  foreach(made IN ITEMS "${object}" "${header}")
    # what is gone is made here, as the stamp is there
    add_custom_command(OUTPUT "${made}"
      COMMAND sh -c "test -e \"$0\" || exec \"$@\"" "${made}" ${arguments} --depfile-target "${stamp}"
      DEPENDS "${stamp}" WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" COMMENT "" VERBATIM COMMAND_EXPAND_LISTS)
  endforeach()
endfunction()

# The target, of what these rules make.
function(_relaybuild_library target)
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library("${target}" ${kind} "${object}" "${header}")
  target_include_directories("${target}" INTERFACE "$<BUILD_INTERFACE:${folder}>")
  target_link_libraries("${target}" INTERFACE "$<BUILD_INTERFACE:relaybuild::headers>")
  set_target_properties("${target}" PROPERTIES PUBLIC_HEADER "${header}" INTERPROCEDURAL_OPTIMIZATION OFF)
  if(kind STREQUAL "SHARED")
    # there is no search path in what relaybuild links, and one library for all configurations
    set_target_properties("${target}" PROPERTIES
      LINKER_LANGUAGE RELAYBUILD BUILD_RPATH "" INSTALL_RPATH "" INSTALL_RPATH_USE_LINK_PATH OFF)
    foreach(each IN LISTS CMAKE_CONFIGURATION_TYPES CMAKE_BUILD_TYPE)
      string(TOUPPER "${each}" each)
      set_target_properties("${target}" PROPERTIES ${each}_POSTFIX "")
    endforeach()
    return()
  endif()
  if(CMAKE_C_COMPILER)
    set_target_properties("${target}" PROPERTIES LINKER_LANGUAGE C)
  else()
    set_target_properties("${target}" PROPERTIES LINKER_LANGUAGE CXX)
  endif()
  if(kind STREQUAL "OBJECT")
    # who links a library of objects gets those that CMake has compiled, and not such as were there
    target_link_libraries("${target}" INTERFACE "$<BUILD_INTERFACE:${object}>")
  endif()
  # what a relocatable object cannot bring: the rest of the C library, and what regions need, which is known when it is
  # compiled; the linker reads the names of these from a file
  _relaybuild_link_bound("${target}" bound)
  target_link_libraries("${target}" INTERFACE "$<BUILD_INTERFACE:-Wl,@\"${folder}/${name}.link\">"
    ${bound} -lm -pthread ${CMAKE_DL_LIBS})
endfunction()

# Sets `result` to those of the options that set flags of the configuration, and are known now.
function(_relaybuild_definitions result)
  set(found "")
  set(is_value FALSE)
  foreach(word IN LISTS arg_OPTIONS)
    if(NOT word MATCHES "\\$<")
      if(is_value)
        list(APPEND found "-D${word}")
      elseif(word MATCHES "^-D.")
        list(APPEND found "${word}")
      endif()
    endif()
    string(COMPARE EQUAL "${word}" "-D" is_value)
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Sets `result` to what those link an installed library with that has regions of other backends: it is exported before
# the model is compiled, so that this is what any model may need, of which the linker takes what is needed.
function(_relaybuild_link_bound target result)
  set(${result} "" PARENT_SCOPE)
  _relaybuild_definitions(definitions)
  if(arg_CONFIG)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${config}")
  elseif(NOT definitions)
    return()
  endif()
  _relaybuild_command(command)
  execute_process(COMMAND ${command} compile "${model}" -o "${object}" --config "${config}" ${definitions} --link-bound
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE words ERROR_VARIABLE said RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "relaybuild_add_model(${target}): ${said}")
  endif()
  string(STRIP "${words}" words)
  if(words STREQUAL "")
    return()
  endif()
  string(REGEX REPLACE "\n" "," words "${words}")
  set(${result} "$<INSTALL_INTERFACE:-Wl,--push-state,--as-needed,${words},--pop-state>" PARENT_SCOPE)
endfunction()

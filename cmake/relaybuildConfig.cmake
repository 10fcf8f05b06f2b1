# What find_package(relaybuild CONFIG) brings, from a checkout and from a wheel; finds nothing and runs nothing.
#
#   relaybuild::headers      the folder of relaybuild/model.h and its neighbours
#   relaybuild::runtime      loads modules at run time; compiled in the project that links it (component `runtime`)
#   relaybuild_add_model()   a library that is compiled from a model (RelaybuildModel.cmake)
if(CMAKE_VERSION VERSION_LESS 3.20)
  set(relaybuild_FOUND FALSE)
  set(relaybuild_NOT_FOUND_MESSAGE "relaybuild needs CMake 3.20 or later, found ${CMAKE_VERSION}")
  return()
endif()

# scripts that an installer puts in the place of others may be older than these: their folder tells
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}")

include("${CMAKE_CURRENT_LIST_DIR}/RelaybuildPackage.cmake")
if(NOT TARGET relaybuild::headers)
  add_library(relaybuild::headers INTERFACE IMPORTED GLOBAL)
  set_target_properties(relaybuild::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_relaybuild_package}/runtime/include")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/RelaybuildRuntime.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/RelaybuildModel.cmake")

set(relaybuild_runtime_FOUND FALSE)
if(TARGET relaybuild::runtime)
  set(relaybuild_runtime_FOUND TRUE)
endif()
foreach(_relaybuild_component IN LISTS relaybuild_FIND_COMPONENTS)
  if(NOT _relaybuild_component STREQUAL "runtime")
    set(relaybuild_${_relaybuild_component}_FOUND FALSE)
    set(_relaybuild_reason "it has no component '${_relaybuild_component}', only 'runtime'")
  else()
    set(_relaybuild_reason "relaybuild::runtime is C and C++: enable both languages before find_package()")
  endif()
  if(relaybuild_FIND_REQUIRED_${_relaybuild_component} AND NOT relaybuild_${_relaybuild_component}_FOUND)
    set(relaybuild_FOUND FALSE)
    set(relaybuild_NOT_FOUND_MESSAGE "${_relaybuild_reason}")
  endif()
endforeach()
unset(_relaybuild_component)
unset(_relaybuild_reason)

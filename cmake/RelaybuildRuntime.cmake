# Defines relaybuild::runtime, compiled where it is linked: `relaybuild/module.h` and the loaders of relaybuild's own
# backends; knows no model.
cmake_policy(VERSION 3.20...3.31)

get_property(_relaybuild_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT TARGET relaybuild::runtime AND "C" IN_LIST _relaybuild_languages AND "CXX" IN_LIST _relaybuild_languages)
  set(_relaybuild_sources "${_relaybuild_package}/runtime/src")
  file(GLOB _relaybuild_loaders "${_relaybuild_package}/contrib/example_json/runtime/*.cc")
  add_library(relaybuild_runtime STATIC EXCLUDE_FROM_ALL
    "${_relaybuild_sources}/module.cc" "${_relaybuild_sources}/checks.c" "${_relaybuild_sources}/packed.c"
    ${_relaybuild_loaders})
  add_library(relaybuild::runtime ALIAS relaybuild_runtime)
  target_link_libraries(relaybuild_runtime PUBLIC relaybuild::headers -pthread ${CMAKE_DL_LIBS})
  target_include_directories(relaybuild_runtime PRIVATE "${_relaybuild_package}/contrib/example_json")
  target_compile_features(relaybuild_runtime PUBLIC cxx_std_17)
  # module.h is included in the project's own sources; gnu11, as these are compiled everywhere
  set_target_properties(relaybuild_runtime PROPERTIES
    C_STANDARD 11 C_EXTENSIONS ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
  # a loader registers itself, and nothing names it: it is taken from the archive because of this symbol
  if(APPLE)
    target_link_options(relaybuild_runtime INTERFACE "LINKER:-u,_rb_example_json_loader")
  else()
    target_link_options(relaybuild_runtime INTERFACE "LINKER:-u,rb_example_json_loader")
  endif()
  unset(_relaybuild_sources)
  unset(_relaybuild_loaders)
endif()
unset(_relaybuild_languages)

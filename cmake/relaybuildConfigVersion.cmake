# Says whether this version of relaybuild is one that find_package() was asked for: of one major version, before 1.0 of
# one minor version, none is older than what was asked for.
include("${CMAKE_CURRENT_LIST_DIR}/RelaybuildPackage.cmake")
set(PACKAGE_VERSION "${_relaybuild_version}")

function(_relaybuild_series version result)
  if(version MATCHES "^(0\\.[0-9]+|[1-9][0-9]*)")
    set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
  else()
    set(${result} "" PARENT_SCOPE)
  endif()
endfunction()

# a range of versions is compared as such
if(PACKAGE_FIND_VERSION_RANGE)
  if(PACKAGE_FIND_VERSION_RANGE_MAX STREQUAL "INCLUDE")
    set(_relaybuild_end VERSION_LESS_EQUAL)
  else()
    set(_relaybuild_end VERSION_LESS)
  endif()
  if(PACKAGE_VERSION VERSION_GREATER_EQUAL PACKAGE_FIND_VERSION_MIN
      AND PACKAGE_VERSION ${_relaybuild_end} PACKAGE_FIND_VERSION_MAX)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
  unset(_relaybuild_end)
elseif(PACKAGE_FIND_VERSION)
  # "0" alone names no series, and whatever is not older will do
  _relaybuild_series("${PACKAGE_VERSION}" _relaybuild_own)
  _relaybuild_series("${PACKAGE_FIND_VERSION}" _relaybuild_wanted)
  if(PACKAGE_VERSION VERSION_GREATER_EQUAL PACKAGE_FIND_VERSION
      AND (_relaybuild_wanted STREQUAL "" OR _relaybuild_wanted STREQUAL _relaybuild_own))
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
  unset(_relaybuild_own)
  unset(_relaybuild_wanted)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION_COMPATIBLE AND PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()

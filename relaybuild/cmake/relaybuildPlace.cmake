# Sets _relaybuild_place to the folder of relaybuild's CMake package, empty if it is nowhere; knows nothing of what is
# in it.
#
# This file lies in a package of Python, where a checkout or a wheel has that folder beside it, and in
# share/cmake/relaybuild below the prefix into which a wheel was installed. Nothing is absolute: all of it may be moved.
file(GLOB _relaybuild_found
  "${CMAKE_CURRENT_LIST_DIR}/../../../lib*/python*/*-packages/relaybuild/_share/cmake"
  "${CMAKE_CURRENT_LIST_DIR}/../../../Lib/site-packages/relaybuild/_share/cmake")
set(_relaybuild_places "")
foreach(_relaybuild_each IN LISTS _relaybuild_found)
  # lib64 may be another name of lib
  get_filename_component(_relaybuild_each "${_relaybuild_each}" REALPATH)
  list(APPEND _relaybuild_places "${_relaybuild_each}")
endforeach()
# of several versions of Python under one prefix, the newest
list(SORT _relaybuild_places COMPARE NATURAL ORDER DESCENDING)
set(_relaybuild_place "")
# a checkout comes first: a build may have left an older copy inside the package
foreach(_relaybuild_each IN ITEMS
    "${CMAKE_CURRENT_LIST_DIR}/../../cmake" "${CMAKE_CURRENT_LIST_DIR}/../_share/cmake" ${_relaybuild_places})
  if(EXISTS "${_relaybuild_each}/relaybuildConfig.cmake")
    get_filename_component(_relaybuild_place "${_relaybuild_each}" ABSOLUTE)
    break()
  endif()
endforeach()
unset(_relaybuild_found)
unset(_relaybuild_places)
unset(_relaybuild_each)

# Leads find_package(relaybuild) to the package's one configuration; knows nothing of what is in it.
include("${CMAKE_CURRENT_LIST_DIR}/relaybuildPlace.cmake")
if(_relaybuild_place)
  include("${_relaybuild_place}/relaybuildConfig.cmake")
else()
  set(relaybuild_FOUND FALSE)
  set(relaybuild_NOT_FOUND_MESSAGE
    "there is no Python package 'relaybuild' beside '${CMAKE_CURRENT_LIST_DIR}': install it again with pip")
endif()

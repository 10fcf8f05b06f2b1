# Leads find_package(relaybuild VERSION) to the package's one version; knows no version.
include("${CMAKE_CURRENT_LIST_DIR}/relaybuildPlace.cmake")
if(_relaybuild_place)
  include("${_relaybuild_place}/relaybuildConfigVersion.cmake")
else()
  set(PACKAGE_VERSION "")
endif()

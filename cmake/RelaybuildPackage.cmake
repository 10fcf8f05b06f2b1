# Sets _relaybuild_package to the folder of the Python package, and _relaybuild_version; knows nothing else of it.
#
# A checkout has the package beside this folder, a wheel has this folder inside the package.
get_filename_component(_relaybuild_package "${CMAKE_CURRENT_LIST_DIR}/../relaybuild" ABSOLUTE)
if(NOT EXISTS "${_relaybuild_package}/__init__.py")
  get_filename_component(_relaybuild_package "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
endif()
file(STRINGS "${_relaybuild_package}/__init__.py" _relaybuild_version REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = \"([0-9.]+).*" "\\1" _relaybuild_version "${_relaybuild_version}")

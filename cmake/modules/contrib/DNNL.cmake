# Finds oneDNN, 2.x or 3.x.
relaybuild_flag_choices(USE_DNNL OFF AUTO ON PATH)

# Memory of a library on SYCL belongs to queues of that runtime, not to the model that calls it.
function(_relaybuild_dnnl_check result include_dir library)
  file(STRINGS "${include_dir}/oneapi/dnnl/dnnl_config.h" line REGEX "define DNNL_CPU_RUNTIME ")
  set(wrong "")
  if(line MATCHES "SYCL|DPCPP|NONE")
    set(wrong "${library} has no threads of its own on the CPU (it was built with '${CMAKE_MATCH_0}' for its CPU runtime)")
  endif()
  set(${result} "${wrong}" PARENT_SCOPE)
endfunction()

relaybuild_find_library(
  RELAYBUILD_DNNL
  HEADERS oneapi/dnnl/dnnl.h
  LIBRARIES dnnl
  CHECK _relaybuild_dnnl_check
)
if(NOT RELAYBUILD_DNNL_FOUND)
  relaybuild_backend_missing(
    dnnl
    FLAG USE_DNNL
    MESSAGE "oneDNN was not found: ${RELAYBUILD_DNNL_REASON}"
    INSTALL "apt-get install libdnnl-dev" "pip install onednn-devel-cpu-gomp"
  )
  return()
endif()

file(
  STRINGS "${RELAYBUILD_DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h"
  lines
  REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)"
)
string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
list(JOIN numbers "." version)
relaybuild_backend(
  dnnl
  FLAG USE_DNNL
  INCLUDE_DIRECTORIES "${RELAYBUILD_DNNL_INCLUDE_DIR}"
  LIBRARIES "${RELAYBUILD_DNNL_LIBRARY}"
  VERSION "${version}"
)

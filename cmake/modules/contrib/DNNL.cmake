# Finds oneDNN, 2.x or 3.x.
relaybuild_flag_choices(USE_DNNL OFF AUTO ON PATH)
relaybuild_find_library(RELAYBUILD_DNNL HEADERS oneapi/dnnl/dnnl.h LIBRARIES dnnl)
set(install "apt-get install libdnnl-dev" "pip install onednn-devel-cpu-gomp")
if(NOT RELAYBUILD_DNNL_FOUND)
  relaybuild_backend_missing(
    dnnl
    FLAG USE_DNNL
    MESSAGE "oneDNN was not found: ${RELAYBUILD_DNNL_REASON}"
    INSTALL ${install}
  )
  return()
endif()

set(folder "${RELAYBUILD_DNNL_INCLUDE_DIR}/oneapi/dnnl")
file(STRINGS "${folder}/dnnl_config.h" runtime REGEX "define DNNL_CPU_RUNTIME ")
if(runtime MATCHES "SYCL|DPCPP|NONE")
  # Memory of such a library belongs to a queue of its runtime, not to the model that calls it.
  relaybuild_backend_missing(
    dnnl
    FLAG USE_DNNL
    MESSAGE "the oneDNN at ${RELAYBUILD_DNNL_LIBRARY} was built without a CPU runtime of its own (${CMAKE_MATCH_0})"
    INSTALL ${install}
  )
  return()
endif()
file(STRINGS "${folder}/dnnl_version.h" lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
list(JOIN numbers "." version)
relaybuild_backend(
  dnnl
  FLAG USE_DNNL
  INCLUDE_DIRECTORIES "${RELAYBUILD_DNNL_INCLUDE_DIR}"
  LIBRARIES "${RELAYBUILD_DNNL_LIBRARY}"
  VERSION "${version}"
)

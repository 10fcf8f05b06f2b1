# Finds a BLAS with the C interface. Defines for the generated code:
#   BLAS_SYMBOL_PREFIX=<prefix>   names begin with it (scipy_cblas_sgemm), in the header too
#   RELAYBUILD_CBLAS_MKL          the header is <mkl_cblas.h>; otherwise it is <cblas.h>
relaybuild_flag_choices(USE_CBLAS OFF AUTO ON PATH)
relaybuild_find_library(
  RELAYBUILD_CBLAS
  HEADERS cblas.h mkl_cblas.h
  LIBRARIES openblas scipy_openblas mkl_rt
  WHEELS scipy_openblas32
  PATH_SUFFIXES openblas mkl
)
if(NOT RELAYBUILD_CBLAS_FOUND)
  relaybuild_backend_missing(
    cblas
    FLAG USE_CBLAS
    MESSAGE "no BLAS with the C interface was found: ${RELAYBUILD_CBLAS_REASON}"
    INSTALL "apt-get install libopenblas-dev" "pip install scipy-openblas32"
  )
  return()
endif()

set(definitions "")
set(version "")
get_filename_component(library_name "${RELAYBUILD_CBLAS_LIBRARY}" NAME)
if(library_name MATCHES "scipy_openblas")
  list(APPEND definitions BLAS_SYMBOL_PREFIX=scipy_)
endif()
if(NOT EXISTS "${RELAYBUILD_CBLAS_INCLUDE_DIR}/cblas.h")
  list(APPEND definitions RELAYBUILD_CBLAS_MKL)
endif()
if(EXISTS "${RELAYBUILD_CBLAS_INCLUDE_DIR}/openblas_config.h")
  file(STRINGS "${RELAYBUILD_CBLAS_INCLUDE_DIR}/openblas_config.h" line REGEX "define OPENBLAS_VERSION ")
  string(REGEX MATCH "[0-9]+(\\.[0-9]+)+" version "${line}")
endif()
relaybuild_backend(
  cblas
  FLAG USE_CBLAS
  INCLUDE_DIRECTORIES "${RELAYBUILD_CBLAS_INCLUDE_DIR}"
  LIBRARIES "${RELAYBUILD_CBLAS_LIBRARY}"
  DEFINITIONS ${definitions}
  VERSION "${version}"
)

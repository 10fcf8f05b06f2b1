# Which backends take part in compiling a model. relaybuild reads the config.cmake of the folder that it is called in, or
# the one that --config names; `relaybuild init` writes a fresh one.
#
# This is a CMake script: if(), option() and include() work, and so do variables such as CMAKE_PREFIX_PATH. A flag on the
# command line (-D USE_DNNL=ON) wins over this file. Names beginning with USE_ are flags: one that no backend knows is an
# error. What was found is remembered until something that was read, or looked for in vain, has changed; a script that
# runs programs (execute_process) is evaluated every time.
#
# What no backend takes is compiled by relaybuild itself, which is always on.

# A small generator of plain C, for element-wise operators. Meant to be read and copied: relaybuild's own code is faster.
#   ON     use it
#   OFF    do not
set(USE_CODEGENC OFF)

# Regions as text in the ExampleJSON format, run by an interpreter that is linked into the model. Another one to copy.
#   ON     use it
#   OFF    do not
set(USE_EXAMPLE_JSON OFF)

# Matrix products by a BLAS with the C interface: OpenBLAS, or MKL.
#   ON     use it; an error where there is none (Debian: libopenblas-dev; PyPI: scipy-openblas32)
#   AUTO   use it where there is one
#   path   the folder that it is installed in, or its library: /opt/openblas, /opt/lib/libopenblas.so
#   OFF    do not
set(USE_CBLAS OFF)

# Convolutions and matrix products by oneDNN.
#   ON     use it; an error where there is none (Debian: libdnnl-dev; PyPI: onednn-devel-cpu-gomp)
#   AUTO   use it where there is one
#   path   the folder that it is installed in, or its library: /opt/onednn, /opt/lib/libdnnl.so
#   OFF    do not
set(USE_DNNL OFF)

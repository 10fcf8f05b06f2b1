"""A compiled model as a folder: a CMake project, or C for any build system. Compiles nothing."""

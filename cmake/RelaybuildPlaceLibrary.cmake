# cmake -P RelaybuildPlaceLibrary.cmake FILE TARGET: what stands for the link of a library that is linked already.
file(CREATE_LINK "${CMAKE_ARGV3}" "${CMAKE_ARGV4}" RESULT _relaybuild_result COPY_ON_ERROR)
if(_relaybuild_result)
  message(FATAL_ERROR "cannot write '${CMAKE_ARGV4}': ${_relaybuild_result}")
endif()

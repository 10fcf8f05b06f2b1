/* SPDX-License-Identifier: Apache-2.0
 *
 * Frees what the C++ runtime in a shared library allocated when that was loaded, so that one can be loaded and unloaded
 * any number of times. Knows nothing else of the library. */
#include <cstddef>

/* Set where the library has a C++ runtime of its own, whose symbols nobody else sees. */
#if defined(RB_OWN_CXX_RUNTIME) && defined(__GLIBCXX__)

namespace __gnu_cxx {
/* libstdc++'s memory for exceptions that are thrown when there is no other. */
void __freeres();
} // namespace __gnu_cxx

namespace {
__attribute__((destructor)) void FreeExceptionMemory() {
  __gnu_cxx::__freeres();
}
} // namespace

#endif

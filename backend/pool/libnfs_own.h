// libnfs's own function of a name that this program defines, too, so that libnfs calls ours.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

namespace kvcachefs {

template <class Function>
Function libnfs_own(const char* name) noexcept {
  void* const found = ::dlsym(RTLD_NEXT, name);
  // It is linked: what calls these is in there.
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function>(found);
}

}  // namespace kvcachefs

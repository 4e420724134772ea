// Several calls to the pool at once: each waits for the server's disk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace kvcachefs {

// Calls `work` from `threads` threads, of which the caller is one; returns when all have returned.
inline void at_once(std::size_t threads, const std::function<void()>& work) {
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace kvcachefs

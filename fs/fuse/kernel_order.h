// The order that the kernel keeps between requests on one open file, said to ThreadSanitizer.
//
// An open file's address goes to the kernel with the answer to OPEN and comes back with later
// requests, on any thread; RELEASE comes when all others are answered. The system calls in
// between order the memory accesses, but the sanitizer cannot see that. In other builds these
// are nothing.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define KVCACHEFS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVCACHEFS_TSAN 1
#endif
#endif

#ifdef KVCACHEFS_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace kvcachefs {

// Before an answer that tells the kernel of `file`, or that we are done with it for this
// request.
inline void before_answer([[maybe_unused]] void* file) noexcept {
#ifdef KVCACHEFS_TSAN
  if (file != nullptr) __tsan_release(file);
#endif
}

// After a request that names `file` has come.
inline void after_request([[maybe_unused]] void* file) noexcept {
#ifdef KVCACHEFS_TSAN
  if (file != nullptr) __tsan_acquire(file);
#endif
}

}  // namespace kvcachefs

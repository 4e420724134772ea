// Errors are values: a Result<T> holds a T or an Error, and TRY() passes the error up.
//
//   Result<int> open_it() {
//     UniqueFd fd = TRY(open_file(path));      // returns the Error when there is one
//     if (bad) return fail(EINVAL, "superblock: wrong length");
//     return 7;
//   }
#pragma once

#include <cassert>
#include <cerrno>
#include <optional>
#include <type_traits>
#include <utility>

namespace kvcachefs {

// What went wrong. `code` is an errno value (> 0). `what` names the step that failed; it is a
// string literal, so an Error is cheap to copy and needs no memory in a low-memory path.
struct Error {
  int code = EIO;
  const char* what = "";
};

// The error case of any Result<T>. `code` must be an errno value.
[[nodiscard]] constexpr Error fail(int code, const char* what) noexcept {
  return Error{code, what};
}
// The same with the errno of the system call that has just failed.
[[nodiscard]] inline Error fail_errno(const char* what) noexcept { return Error{errno, what}; }

template <class T>
class [[nodiscard]] Result {
 public:
  using Value = T;
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, `return value;`
  Result(Error error) noexcept
      : error_(error) {}  // NOLINT: implicit on purpose, `return fail(…);`

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  // Precondition: !ok().
  [[nodiscard]] const Error& error() const noexcept {
    assert(!ok());
    return error_;
  }
  // Precondition of all that follow: ok().
  [[nodiscard]] T& value() & noexcept { return *value_; }
  [[nodiscard]] const T& value() const& noexcept { return *value_; }
  // By value, so that `for (x : *list())` does not walk what has ended.
  [[nodiscard]] T value() && noexcept { return std::move(*value_); }
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

 private:
  std::optional<T> value_;
  Error error_{};
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using Value = void;
  Result() noexcept = default;
  Result(Error error) noexcept : error_(error), ok_(false) {}  // NOLINT: implicit on purpose

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  [[nodiscard]] const Error& error() const noexcept {
    assert(!ok_);
    return error_;
  }
  void value() const noexcept {}

 private:
  Error error_{};
  bool ok_ = true;
};

}  // namespace kvcachefs

// The value of a Result, or a return of its error from the enclosing function. The name is
// unique, so that one TRY may stand inside another's argument.
#define KV_TRY_NAMED(expression, name)   \
  __extension__({                        \
    auto name = (expression);            \
    if (!name.ok()) return name.error(); \
    std::move(name).value();             \
  })
#define KV_TRY_COUNTED(expression, counter) KV_TRY_JOINED(expression, kv_try_result_##counter)
#define KV_TRY_JOINED(expression, name) KV_TRY_NAMED(expression, name)
#define KV_TRY_EXPANDED(expression, counter) KV_TRY_COUNTED(expression, counter)
#define TRY(expression) KV_TRY_EXPANDED(expression, __COUNTER__)

// Expectations on a Result: what failed, in the test's output.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "backend/base/result.h"

namespace kvcachefs::testing {

template <class T>
::testing::AssertionResult is_ok(const Result<T>& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << result.error().what << ": " << std::strerror(result.error().code);
}

template <class T>
int code_of(const Result<T>& result) {
  return result.ok() ? 0 : result.error().code;
}

}  // namespace kvcachefs::testing

#define EXPECT_OK(expression) EXPECT_TRUE(::kvcachefs::testing::is_ok(expression))
#define ASSERT_OK(expression) ASSERT_TRUE(::kvcachefs::testing::is_ok(expression))
#define EXPECT_ERROR(expected_code, expression) \
  EXPECT_EQ(expected_code, ::kvcachefs::testing::code_of(expression))
#define ASSERT_ERROR(expected_code, expression) \
  ASSERT_EQ(expected_code, ::kvcachefs::testing::code_of(expression))

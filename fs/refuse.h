// What a user asked for is not done: `problem` tells him why, and what to do.
#pragma once

#include <cerrno>
#include <string>
#include <utility>

#include "backend/base/result.h"

namespace kvcachefs {

inline Error refuse(std::string& problem, std::string text, int code = EINVAL) {
  problem = std::move(text);
  return fail(code, "refused");
}

}  // namespace kvcachefs

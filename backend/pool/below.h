// A change below a directory that may not be there yet.
#pragma once

#include <cerrno>
#include <string_view>

#include "backend/pool/pool_path.h"
#include "backend/pool/pool_session.h"
#include "backend/pool/pool_transfer.h"

namespace kvcachefs {

// Calls `act`, which makes `path`. Where its directory is missing it makes that one and calls
// `act` once more.
template <class Act>
auto below(PoolSession& session, std::string_view path, Act act, Deadline deadline)
    -> decltype(act()) {
  auto acted = act();
  const auto directory = split_pool_path(path).first;
  if (acted.ok() || acted.error().code != ENOENT || directory.empty()) return acted;
  TRY(make_directories(session, directory, deadline));
  return act();
}

}  // namespace kvcachefs

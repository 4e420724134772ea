// What a pool says of its directories: what they were told, beside whose they are
// (pool_transfer.h), and how a directory goes with all that is said of it. FORMAT.md says what is
// written.
//
// The calls block, with a session of the calling thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/pool/pool_format.h"
#include "backend/pool/pool_session.h"

namespace kvcachefs {

// What this very directory was told. nullopt: nobody has told it anything, or the record does not
// read, which is logged. Errors: those of any call.
[[nodiscard]] Result<std::optional<PoolTold>> find_told(PoolSession& session,
                                                        std::string_view path,
                                                        const PoolStatus& status,
                                                        Deadline deadline);

struct PoolTelling {
  std::string path;
  std::uint64_t fileid = 0;
  std::vector<PoolWord> words;  // kPoolUntold: the directory is told this no longer
  std::uint64_t number = 0;     // of this try alone, as that of a publication
};
// Writes the words into the directory's record beside those that stand there, and gives the record
// as it is then. A record that does not read is replaced. nullopt: that directory has the path no
// more. Errors: those of create(), write() and rename().
[[nodiscard]] Result<std::optional<PoolTold>> tell_directory(PoolSession& session,
                                                             const PoolTelling& telling,
                                                             const Uuid& node,
                                                             Deadline deadline);

// Removes an empty directory and what is said of it, and gives its number. `fileid`: 0 for
// whichever stands there. Errors: ENOENT, ENOTDIR, ENOTEMPTY, ESTALE (another directory has the
// path), and those of any call.
[[nodiscard]] Result<std::uint64_t> remove_described_directory(PoolSession& session,
                                                               const std::string& path,
                                                               std::uint64_t fileid,
                                                               Deadline deadline);

}  // namespace kvcachefs

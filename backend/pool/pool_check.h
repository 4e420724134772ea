// Looks at all that stands on a pool, for a person: which files are what was published, and what nobody needs any more.
//
// Calls block, with a session of the calling thread, and take as long as there are files: `each` bounds each operation.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "backend/pool/pool_session.h"
#include "backend/pool/pool_trash.h"

namespace kvcachefs {

struct PoolCheck {
  std::uint64_t directories = 0;
  std::uint64_t files = 0;  // of users
  std::uint64_t bytes = 0;  // of these
  // Files whose checksums stand there, damaged or not; the others were put there by somebody else.
  std::uint64_t described = 0;
  // Of these, as far as was looked: files that are not what their checksums say.
  std::uint64_t damaged = 0;
  std::uint64_t others = 0;  // symlinks and the like, which mounts do not show
};
// What is wrong, and where.
using PoolFinding = std::function<void(std::string_view path, std::string_view what)>;

// `read`: the bytes are compared with the checksums, too. Errors: those of any call; what concerns one file alone is
// found, and no error.
[[nodiscard]] Result<PoolCheck> check_pool_files(PoolSession& session, bool read,
                                                 const PoolFinding& found,
                                                 std::chrono::milliseconds each);

// A mount that has said nothing for so long has ended, whatever became of it: nobody reads what it has answered.
inline constexpr std::chrono::seconds kSilentAfter{15};

struct PoolGarbage {
  std::uint64_t nodes = 0;        // that had been silent for an hour, with their logs
  std::uint64_t temporaries = 0;  // files of these
  PoolTrash trash;                // that no mount can need any more
  PoolTrash trash_left;           // that one may need still
  std::uint64_t living =
      0;  // mounts: while there is one, what was put into the trash of late stays
  std::uint64_t records = 0;  // checksums of files that are gone
  // False: not all that stands there could be looked at, and so no checksums were removed.
  bool all_seen = true;
};

// Removes what mounts would remove sooner or later, and checksums without a file. `now`: by the server's clock.
// Mounts may use the pool meanwhile. Errors: those of any call; what was removed before stays so.
[[nodiscard]] Result<PoolGarbage> collect_pool_garbage(PoolSession& session, UnixNanos now,
                                                       std::chrono::milliseconds each);

// By the server's clock; a full pool tells it, too. Errors: those of any call; EROFS, EACCES.
[[nodiscard]] Result<UnixNanos> pool_time(PoolSession& session, Deadline deadline);

}  // namespace kvcachefs

// Where a pool is, as the user says it:
//
//   dir:///ABSOLUTE/PATH
//   nfs://HOST/EXPORT[/PATH][?nfsport=N][&mountport=N][&uid=N][&gid=N]
//
// HOST is a name, an IPv4 address or an IPv6 address in brackets. Without ports the server's portmapper (port 111)
// is asked. uid and gid are what the server is told; default the daemon's own. %XX stands for a byte of a path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/base/result.h"

namespace kvcachefs {

struct PoolUri {
  enum class Kind : std::uint8_t { kDirectory, kNfs };
  Kind kind = Kind::kDirectory;
  std::string path;              // absolute; of NFS the export and what is below it
  std::string host;              // NFS alone, as all that follows
  std::uint16_t nfs_port = 0;    // 0: ask the portmapper
  std::uint16_t mount_port = 0;  // the same
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
};

// Errors: EINVAL; the text says what is wrong, for a person.
[[nodiscard]] Result<PoolUri> parse_pool_uri(std::string_view text);

}  // namespace kvcachefs

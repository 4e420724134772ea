// What a user-space NFS server (NFS-Ganesha 4, FSAL_VFS) must be told so that it can serve a mount of ours. Pure.
//
// Source: config_samples/*.txt of nfs-ganesha, ganesha-core-config(8), ganesha-cache-config(8), ganesha-export-config(8).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

enum class Squash : std::uint8_t {
  kRoot,  // root of a client is nobody
  kNone,
  kAll,  // everybody is nobody
};

struct GaneshaExport {
  std::string path;     // the mount point, absolute
  std::string name;     // what clients mount: "/kvcachefs"
  std::string address;  // to listen on: a number
  std::uint16_t port = 2049;
  std::uint16_t mount_port = 20048;  // of version 3's mount protocol
  bool v3 = true;
  bool v4 = true;
  Squash squash = Squash::kRoot;
  std::vector<std::string> clients;  // addresses, networks, names; empty: all that reach it
  std::string work;                  // a directory of the server's own
};

// The whole file. Errors: EINVAL (a path, name, address or client that cannot be written in it; no version);
// `problem` says which, and what to do.
Result<std::string> ganesha_config(const GaneshaExport& what, std::string& problem);

// The options with which a client of Linux mounts it, and the source.
[[nodiscard]] std::string linux_mount(const GaneshaExport& what, const std::string& host);

}  // namespace kvcachefs

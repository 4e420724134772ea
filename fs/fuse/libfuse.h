// The one include of libfuse, and what differs between the versions that we build with (3.14
// to 3.18).
//
// Functions are found by checks of the build (KVCACHEFS_HAVE_…), capabilities by their macros,
// and members of libfuse's structs by the compiler, in the templates below: never by a version
// number.
#pragma once

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

#include <cstdint>

namespace kvcachefs {

// Asks the kernel for a capability. False: the kernel does not offer it.
template <class Connection>
bool want_capability(Connection& connection, std::uint64_t flag) noexcept {
  if constexpr (requires { connection.capable_ext; }) {
    return fuse_set_feature_flag(&connection, flag);
  } else {
    if ((connection.capable & flag) == 0) return false;
    connection.want |= static_cast<unsigned>(flag);
    return true;
  }
}

template <class Connection>
void refuse_capability(Connection& connection, std::uint64_t flag) noexcept {
  if constexpr (requires { connection.capable_ext; }) {
    fuse_unset_feature_flag(&connection, flag);
  } else {
    connection.want &= ~static_cast<unsigned>(flag);
  }
}

// No handler waits for anything that a signal could end, so INTERRUPT requests are only a cost.
template <class Connection>
void refuse_interrupts(Connection& connection) noexcept {
  if constexpr (requires { connection.no_interrupt; }) connection.no_interrupt = 1;
}

template <class Connection>
void set_backing_depth(Connection& connection, unsigned depth) noexcept {
  if constexpr (requires { connection.max_backing_stack_depth; }) {
    connection.max_backing_stack_depth = depth;
  }
}

template <class FileInfo>
void set_backing_id(FileInfo& info, int id) noexcept {
  if constexpr (requires { info.backing_id; }) info.backing_id = id;
}

// The kernel's word that whoever opens, truncating, or writes may not keep set-user-ID bits;
// absent in old versions, where the kernel clears them itself.
template <class FileInfo>
bool kills_set_id_bits(const FileInfo& info) noexcept {
  if constexpr (requires { info.kill_suidgid; }) {
    return info.kill_suidgid != 0;
  } else {
    return false;
  }
}

template <class Operations, class Function>
void set_tmpfile(Operations& operations, Function function) noexcept {
  if constexpr (requires { operations.tmpfile; }) operations.tmpfile = function;
}

}  // namespace kvcachefs

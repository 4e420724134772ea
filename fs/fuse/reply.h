// The answer to one request: moved along with the work, given exactly once.
//
// This is the only place where an Error becomes an errno, and where an answered request is
// counted and timed. Destroying an unanswered Reply, or answering twice, is a bug and ends the
// process.
#pragma once

#include <sys/statvfs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "fs/fuse/context.h"
#include "fs/fuse/parking.h"

namespace kvcachefs {

class Reply {
 public:
  // Starts the clock: to be made first thing in a handler.
  Reply(fuse_req_t request, Operation operation) noexcept;
  Reply(Reply&& other) noexcept;
  Reply& operator=(Reply&&) = delete;
  ~Reply();

  [[nodiscard]] fuse_req_t request() const noexcept { return request_; }
  [[nodiscard]] OperationContext& context() const noexcept { return context_of(request_); }
  [[nodiscard]] Volume& volume() const noexcept { return *context().volume; }

  // The open file that the request names, null when it names none: the FUSE file handle is its
  // address.
  [[nodiscard]] OpenFile* file(const fuse_file_info* info) noexcept;
  // The open directory that the request names, null when nothing is to be told of it.
  [[nodiscard]] OpenDirectory* directory(const fuse_file_info* info) noexcept;

  // Memory for a result of up to `size` bytes, for data(): the ring entry's own where there is
  // one (then nothing is copied), else this thread's. Valid until the answer, on the thread
  // that asks.
  [[nodiscard]] std::span<std::byte> buffer(std::size_t size);

  // It waits for a worker now: the place is free again when the answer goes, upon which its
  // user may send the next.
  void park(Parking::Place&& place) noexcept { place_ = std::move(place); }

  void error(const Error& error) noexcept;
  // ok(), or the error.
  void result(const Result<void>& result) noexcept;
  void ok() noexcept;
  // FORGET is not answered, only accounted.
  void none() noexcept;
  void no_entry(double timeout_s) noexcept;
  void attributes(const AttributesReply& attributes) noexcept;
  void statx(const AttributesReply& attributes) noexcept;
  void data(const void* bytes, std::size_t size) noexcept;
  void link_target(const char* target) noexcept;
  void written(std::size_t count) noexcept;
  void space(const struct statvfs& space) noexcept;
  void xattr_size(std::size_t size) noexcept;
  void position(std::uint64_t offset) noexcept;
  // These three hand the kernel something that has to be given back when the requester is gone:
  // false means it was not delivered, and the caller undoes what it counted.
  [[nodiscard]] bool entry(const Entry& entry) noexcept;
  [[nodiscard]] bool opened(const Opened& opened, fuse_file_info& info) noexcept;
  [[nodiscard]] bool created(const Created& created, fuse_file_info& info) noexcept;
  [[nodiscard]] bool entries(const void* bytes, std::size_t size) noexcept;

 private:
  // Hands out the request for its one answer, and closes the account.
  fuse_req_t take(const Error& error = {.code = 0, .what = ""}) noexcept;

  fuse_req_t request_;
  Operation operation_;
  std::int64_t began_ns_;
  Parking::Place place_;
  void* handle_ = nullptr;  // the open file or directory that the kernel keeps in order
};

[[nodiscard]] fuse_entry_param to_entry_param(const Entry& entry) noexcept;

}  // namespace kvcachefs

// A bound for the record that an answer comes in.
//
// RFC 5531 section 11: a record is any number of fragments. libnfs 4.0.0 (lib/socket.c,
// lib/pdu.c) refuses a fragment beyond 1 MiB and 4 KiB, keeps any number of them, and reads on
// for as long as something comes: a server that never sends the last one has it take all
// memory, beyond any deadline. It keeps each by rpc_add_fragment(), which the executable can
// define, too; nfs_record.cc does, counts, and refuses what is too much. libnfs then ends the
// connection.
//
// As nfs_xdr.h: it works for the shared library that Debian ships; the unit test says whether
// it does for the one at hand.
#pragma once

#include <cstddef>

namespace kvcachefs {

// The fragments that one connection holds. One thread at a time.
class NfsRecord {
 public:
  // As one fragment may be: no request of ours asks for more.
  static constexpr std::size_t kMostBytes = (std::size_t{1} << 20) + 4096;
  // libnfs walks over all of them for each that comes.
  static constexpr std::size_t kMostFragments = 1024;

  // For as long as it lives, what this thread has libnfs read belongs to that record.
  class Reading {
   public:
    explicit Reading(NfsRecord& record) noexcept;
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    NfsRecord* before_;
  };

  // Whether a fragment of that size may be kept.
  [[nodiscard]] bool add(std::size_t size) noexcept;
  // None is kept any more.
  void clear() noexcept { *this = NfsRecord(); }

 private:
  std::size_t bytes_ = 0;
  std::size_t fragments_ = 0;
};

}  // namespace kvcachefs

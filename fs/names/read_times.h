// When directories were listed and symlinks read last: what stat(2) shows as their access time.
// Of files the kernel keeps it, in their backing files.
//
// A read moves the time as mount(8) says of relatime, strictatime, noatime and nodiratime: by
// default where it is not later than the last change, or a day old (relatime_need_update(),
// fs/inode.c). It is shown at once, from memory (Inode::read_at), and written down once a
// minute and at the stop: a crash loses the last minute's.
//
// Any thread; the lock is a leaf. Memory: the inodes that wait, kMost at most; beyond these a
// read moves nothing.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "fs/names/read_times_options.h"
#include "fs/node/inode.h"

namespace kvcachefs {

struct Core;

class ReadTimes {
 public:
  static constexpr std::size_t kMost = 4096;

  explicit ReadTimes(const ReadTimesOptions& options) : options_(options) {}

  // Somebody has listed the directory, or read the symlink. Takes no lock of it. True: what the
  // kernel has of its attributes does not hold any more; a listing or a readlink that came to
  // the daemon has told it so.
  bool note(const InodePtr& inode);
  // Writes down what waits, under each one's lock. What the disk refuses is forgotten.
  void write(Core& core);

  // Puts it into attributes made of the record of a directory or a symlink.
  static void show(const Inode& inode, struct stat& attributes) noexcept;

 private:
  [[nodiscard]] AccessTimes times_of(const Inode& inode) const noexcept;
  // False: it was read once more meanwhile.
  static bool write_one(Core& core, Inode& inode);

  const ReadTimesOptions options_;
  std::mutex mutex_;
  std::vector<InodePtr> waiting_;  // under mutex_; each once, mostly
};

}  // namespace kvcachefs

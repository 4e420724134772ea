// The offline check of a state directory: the catalog against itself, and against the backing
// files on the devices; and the repair of what it finds.
//
// Everything is streamed: the memory it takes is a few bytes a directory, and what it would
// change (without --repair) or one record at a time (with it). Every sealed file is read in
// full.
#pragma once

#include <cstdio>
#include <string>

namespace kvcachefs {

struct FsckOptions {
  std::string state;    // the state directory
  bool repair = false;  // otherwise nothing is changed
};

struct FsckResult {
  // As fsck(8): 0 clean, 1 everything was repaired, 4 problems are left, 8 the check itself
  // failed (mounted, a device is missing, the database does not open).
  int exit_code = 0;
  std::string problem;  // of 8: what failed, on what, and what to do
};

// Writes a line a problem, and a last one that sums up. Takes the state directory's lock.
FsckResult run_fsck(const FsckOptions& options, std::FILE* out);

}  // namespace kvcachefs

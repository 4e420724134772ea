// The files of blocks on a mount: named as the runtime that is played names them, stored, looked up
// and read by the system calls that it makes.
//
// Any thread may call; what fails that a runtime relies on ends the program.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/sim/trace.h"

namespace kvcachefs::sim {

class MountFiles {
 public:
  // `runtime`: of known_runtimes(). `bytes`: of each file; 0: 4 to 64, by the block.
  MountFiles(const std::string& directory, const std::string& runtime, std::size_t blocks,
             std::size_t bytes = 0);

  // Whether it is there.
  [[nodiscard]] bool probe(BlockId block) const;
  // False: it is gone.
  [[nodiscard]] bool load(BlockId block) const;
  // `before_lookup` is called before each call that looks up the final name.
  void store(BlockId block, const std::function<void()>& before_lookup) const;

  // What the mount says is before it, by user.kvcachefs.parent.
  [[nodiscard]] std::optional<BlockId> parent(BlockId block) const;

 private:
  enum class Layout { kVllm, kLlmd, kLmcacheFs, kLmcacheMp, kSglang };

  static Layout layout_of(const std::string& runtime);
  [[nodiscard]] std::string path_of(const std::string& directory,
                                    const std::string& hash) const;
  [[nodiscard]] std::string temporary_of(BlockId block) const;
  void make_directories(const std::string& path) const;

  const Layout layout_;
  const std::size_t bytes_;
  std::string root_;
  std::vector<std::string> paths_;
  std::unordered_map<std::string, BlockId> by_hash_;
};

}  // namespace kvcachefs::sim

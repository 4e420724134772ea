#include "tests/sim/mount_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/base/unique_fd.h"

namespace kvcachefs::sim {
namespace {

[[noreturn]] void die(const char* what, const std::string& path) {
  std::fprintf(stderr, "%s %s: %s\n", what, path.c_str(), std::strerror(errno));
  std::_Exit(1);
}

std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

std::string hash_of(BlockId block) {
  std::array<char, 65> text{};
  for (unsigned i = 0; i < 4; ++i) {
    std::snprintf(text.data() + std::size_t{16} * i, 17, "%016llx",
                  static_cast<unsigned long long>(mix(std::uint64_t{block} * 4 + i)));
  }
  return text.data();
}

}  // namespace

MountFiles::Layout MountFiles::layout_of(const std::string& runtime) {
  if (runtime == "llm-d") return Layout::kLlmd;
  if (runtime == "lmc-fs") return Layout::kLmcacheFs;
  if (runtime == "sglang") return Layout::kSglang;
  return runtime.rfind("vllm", 0) == 0 ? Layout::kVllm : Layout::kLmcacheMp;
}

MountFiles::MountFiles(const std::string& directory, const std::string& runtime,
                       std::size_t blocks, std::size_t bytes)
    : layout_(layout_of(runtime)), bytes_(bytes), root_(directory) {
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto block = static_cast<BlockId>(i);
    const std::string hash = hash_of(block);
    paths_.push_back(path_of(directory, hash));
    by_hash_.emplace(hash, block);
  }
}

std::string MountFiles::path_of(const std::string& directory, const std::string& hash) const {
  const std::string fan_out = hash.substr(0, 3) + "/" + hash.substr(3, 2);
  switch (layout_) {
    case Layout::kVllm:
      return directory + "/meta-llama_Llama-3.1-8B_1a2b3c4d5e6f_r0/" + fan_out + "_g0/" + hash +
             ".bin";
    case Layout::kLlmd:
      return directory +
             "/meta-llama/Llama-3.1-8B/block_size_16_blocks_per_file_32/"
             "tp_1_pp_size_1_pcp_size_1/rank_0/bfloat16/" +
             fan_out + "/" + hash + ".bin";
    case Layout::kLmcacheFs:
      return directory + "/meta-llama-SEP-Llama-3.1-8B@1@0@" + hash + "@bfloat16.data";
    case Layout::kLmcacheMp:
      return directory + "/meta-llama-SEP-Llama-3.1-8B@0x01000100@0@" + hash + ".data";
    case Layout::kSglang:
      return directory + "/" + hash + "_meta-llama-Llama-3.1-8B_0_1.bin";
  }
  std::abort();
}

std::string MountFiles::temporary_of(BlockId block) const {
  const std::string& path = paths_[block];
  if (layout_ == Layout::kLmcacheFs || layout_ == Layout::kLmcacheMp) return path + ".tmp";
  const std::uint64_t random =
      mix(static_cast<std::uint64_t>(::gettid()) << 32 | std::uint64_t{block});
  if (layout_ != Layout::kSglang)
    return path + "_" + std::to_string(random % 1'000'000'000) + ".tmp";
  std::array<char, 33> id{};
  std::snprintf(id.data(), id.size(), "%016llx%016llx", static_cast<unsigned long long>(random),
                static_cast<unsigned long long>(mix(random)));
  return path.substr(0, path.rfind('/') + 1) + "." + id.data() + ".tmp";
}

bool MountFiles::probe(BlockId block) const {
  const std::string& path = paths_[block];
  struct stat status {};
  const int found =
      layout_ == Layout::kVllm ? ::access(path.c_str(), F_OK) : ::stat(path.c_str(), &status);
  if (found != 0 && errno != ENOENT) die("probe", path);
  return found == 0;
}

bool MountFiles::load(BlockId block) const {
  const UniqueFd fd(::open(paths_[block].c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return false;
  std::array<char, 64> bytes{};
  if (!fd || ::read(fd.get(), bytes.data(), bytes.size()) < 4) die("load", paths_[block]);
  return true;
}

// As os.makedirs(exist_ok=True): the last one first, and what is above it when it fails.
void MountFiles::make_directories(const std::string& path) const {
  const std::string directory = path.substr(0, path.rfind('/'));
  if (directory == root_ || ::mkdir(directory.c_str(), 0755) == 0 || errno == EEXIST) return;
  if (errno != ENOENT) die("mkdir", directory);
  make_directories(directory);
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) die("mkdir", directory);
}

void MountFiles::store(BlockId block, const std::function<void()>& before_lookup) const {
  const std::string& path = paths_[block];
  const std::string temporary = temporary_of(block);
  if (layout_ == Layout::kSglang) {
    before_lookup();
    if (probe(block)) die("stored twice", path);
  }
  if (layout_ == Layout::kVllm || layout_ == Layout::kLlmd) make_directories(path);
  {
    const UniqueFd fd(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) die("create", temporary);
    const std::size_t size = bytes_ > 0 ? bytes_ : 4 + block % 61;
    const std::vector<char> bytes(size);
    if (::write(fd.get(), bytes.data(), size) != static_cast<ssize_t>(size))
      die("write", temporary);
  }
  before_lookup();
  if (::rename(temporary.c_str(), path.c_str()) != 0) die("rename", temporary);
}

std::optional<BlockId> MountFiles::parent(BlockId block) const {
  std::array<char, 256> value{};
  const ssize_t size = ::getxattr(paths_[block].c_str(), "user.kvcachefs.parent", value.data(),
                                  value.size() - 1);
  if (size < 0 && errno == ENODATA) return std::nullopt;
  if (size < 0) die("parent of", paths_[block]);
  const auto found = by_hash_.find(value.data());
  if (found == by_hash_.end()) die("unknown parent of", paths_[block]);
  return found->second;
}

}  // namespace kvcachefs::sim

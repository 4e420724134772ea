// kvcachefs_knowing DIRECTORY KIND NAMES [same]: what it costs that a name is recognised. Creates and
// renames, looks up and removes names that are blocks' (KIND: lmcache, flat, or vllm, 256 directories)
// and names that differ from them in one thing: the hash is in upper case. Both sides go by turns, 50
// names at a time, so that what disturbs one disturbs the other. With `same` both are in upper case:
// what is chance. One line of JSON an operation.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kBatch = 50;

[[noreturn]] void die(const char* what, const std::string& path) {
  std::fprintf(stderr, "kvcachefs_knowing: %s %s: %s\n", what, path.c_str(),
               std::strerror(errno));
  std::exit(1);
}

std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// Of both sides the same lengths, in directories of the same shape.
class Names {
 public:
  Names(const std::string& directory, bool vllm, bool upper) : vllm_(vllm), upper_(upper) {
    root_ = directory + (upper ? "/plain" : "/known");
    make(root_);
    if (!vllm) return;
    root_ += "/meta-llama_Llama-3.1-8B_1a2b3c4d5e6f_r0";
    make(root_);
    make(root_ + "/" + cased("00a"));
    for (unsigned i = 0; i < 256; ++i) {
      std::array<char, 8> leaf{};
      std::snprintf(leaf.data(), leaf.size(), "%02x", i);
      make(root_ + "/" + cased("00a") + "/" + cased(leaf.data()) + "_g0");
    }
  }

  [[nodiscard]] std::string at(std::uint64_t number) const {
    std::array<char, 65> hash{};
    for (std::uint64_t i = 0; i < 4; ++i) {
      std::snprintf(hash.data() + i * 16, 17, "%016llx",
                    static_cast<unsigned long long>(mix(number * 4 + i)));
    }
    std::string text = cased(hash.data());
    if (!vllm_) return root_ + "/meta-llama-SEP-Llama-3.1-8B@1@0@" + text + "@bfloat16.data";
    text.replace(0, 3, cased("00a"));
    return root_ + "/" + text.substr(0, 3) + "/" + text.substr(3, 2) + "_g0/" + text + ".bin";
  }

 private:
  static void make(const std::string& path) {
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) die("mkdir", path);
  }
  [[nodiscard]] std::string cased(std::string text) const {
    if (upper_) {
      std::transform(text.begin(), text.end(), text.begin(),
                     [](char c) { return c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c; });
    }
    return text;
  }

  const bool vllm_;
  const bool upper_;
  std::string root_;
};

void store(const std::string& path) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) die("create", temporary);
  ::close(fd);
  if (::rename(temporary.c_str(), path.c_str()) != 0) die("rename", temporary);
}

void look_up(const std::string& path, bool there) {
  struct stat status {};
  if ((::stat(path.c_str(), &status) == 0) != there) die("stat", path);
}

void remove_name(const std::string& path) {
  if (::unlink(path.c_str()) != 0) die("unlink", path);
}

using Sides = std::array<const Names*, 2>;
using Step = std::function<void(const std::string&)>;

void measure(const char* operation, const Sides& sides, std::uint64_t first,
             std::uint64_t count, std::uint64_t stride, const Step& step) {
  using Clock = std::chrono::steady_clock;
  std::array<std::vector<double>, 2> micros;
  std::vector<std::string> paths;
  for (std::uint64_t begin = 0; begin < count; begin += kBatch) {
    for (std::size_t turn = 0; turn < 2; ++turn) {
      const std::size_t side = (begin / kBatch + turn) % 2;
      paths.clear();
      for (std::uint64_t i = begin; i < std::min(begin + kBatch, count); ++i)
        paths.push_back(sides[side]->at(first + i * stride % count));
      for (const std::string& path : paths) {
        const auto began = Clock::now();
        step(path);
        const std::chrono::duration<double, std::micro> took = Clock::now() - began;
        micros[side].push_back(took.count());
      }
    }
  }
  std::printf("{\"operation\":\"%s\"", operation);
  for (const std::size_t side : {0, 1}) {
    double sum = 0;
    for (const double took : micros[side]) sum += took;
    std::sort(micros[side].begin(), micros[side].end());
    std::printf(",\"%s\":{\"p50_us\":%.2f,\"per_second\":%.0f}", side == 0 ? "known" : "plain",
                micros[side][micros[side].size() / 2], static_cast<double>(count) / sum * 1e6);
  }
  std::printf("}\n");
}

// The names' dentries, so that every one is asked of the daemon.
void drop_dentries() {
  const int fd = ::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || ::write(fd, "2", 1) != 1) die("write", "/proc/sys/vm/drop_caches");
  ::close(fd);
}

// A prime: an order that no read-ahead knows, every name once.
constexpr std::uint64_t kStride = 1'000'003;

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[2] : "";
  const std::uint64_t count = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (argc > 5 || count == 0 || count % kStride == 0 || (kind != "vllm" && kind != "lmcache")) {
    std::fprintf(stderr, "usage: kvcachefs_knowing DIRECTORY lmcache|vllm NAMES [same]\n");
    return 2;
  }
  const bool same = argc == 5;
  const std::string directory = argv[1];
  if (same) ::mkdir((directory + "/other").c_str(), 0755);
  const Names known(same ? directory + "/other" : directory, kind == "vllm", same);
  const Names plain(directory, kind == "vllm", true);
  const Sides sides{&known, &plain};
  measure("create+rename", sides, 0, count, 1, store);
  drop_dentries();
  measure("lookup, there", sides, 0, count, kStride,
          [](const std::string& path) { look_up(path, true); });
  measure("lookup, absent", sides, count, count, 1,
          [](const std::string& path) { look_up(path, false); });
  measure("unlink", sides, 0, count, kStride, remove_name);
  return 0;
}

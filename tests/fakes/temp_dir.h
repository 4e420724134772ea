// Directories for tests: one that goes away with the test, and small filesystems to fill up or
// write-protect.
#pragma once

#include <sys/mount.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace kvcachefs::testing {

class TempDir {
 public:
  explicit TempDir(const char* usual_base = "/var/tmp") {
    const char* base = std::getenv("KVCACHEFS_TEST_DIR");
    make_in(base != nullptr ? base : usual_base);
  }
  // In that directory, whatever the environment says.
  static TempDir in(const std::string& directory) { return TempDir(directory, Exactly{}); }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string operator/(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }

 private:
  struct Exactly {};
  TempDir(const std::string& directory, Exactly /*unused*/) { make_in(directory); }
  void make_in(const std::string& directory) {
    std::string pattern = directory + "/kvcachefs-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp: " + pattern);
    path_ = pattern;
  }

  std::string path_;
};

// A filesystem mounted on a directory of its own until the end of the test. Needs root.
class TempMount {
 public:
  // A tmpfs; `options` as of mount(8), for example "size=8m".
  explicit TempMount(const std::string& options) {
    if (::mount("kvcachefs-test", dir_.path().c_str(), "tmpfs", 0,
                ("mode=0700," + options).c_str()) != 0) {
      throw std::system_error(errno, std::generic_category(), "mount tmpfs");
    }
  }
  ~TempMount() { ::umount2(dir_.path().c_str(), MNT_DETACH); }
  TempMount(const TempMount&) = delete;
  TempMount& operator=(const TempMount&) = delete;

  void set_read_only(bool read_only) {
    const unsigned long flags =
        MS_REMOUNT | (read_only ? static_cast<unsigned long>(MS_RDONLY) : 0ul);
    if (::mount(nullptr, dir_.path().c_str(), nullptr, flags, nullptr) != 0) {
      throw std::system_error(errno, std::generic_category(), "remount");
    }
  }
  // `options` as of mount(8), for example "size=64m".
  void change(const std::string& options) {
    if (::mount(nullptr, dir_.path().c_str(), nullptr, MS_REMOUNT, options.c_str()) != 0) {
      throw std::system_error(errno, std::generic_category(), "remount");
    }
  }
  [[nodiscard]] const std::string& path() const noexcept { return dir_.path(); }
  [[nodiscard]] std::string operator/(std::string_view name) const { return dir_ / name; }

 private:
  TempDir dir_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("write " + path);
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace kvcachefs::testing

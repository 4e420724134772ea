// Where pools are, for the tests that hold for all of them: a directory of ext4, and a real NFS server.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "backend/base/random.h"
#include "backend/pool/dir_session.h"
#include "backend/pool/nfs_session.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"
#include "tests/servers/nfs_server.h"

namespace kvcachefs::testing {

inline const Uuid kNode = *parse_uuid("01234567-89ab-cdef-0123-456789abcdef");

inline Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds{20}; }

// A name that says what is in the file: the hash of its prefix.
inline std::string block_name(int number) {
  return "meta-llama-Llama-3.1-8B-Instruct@1@0@" + std::to_string(1000 + number) +
         "3f2a11c0de@bfloat16.data";
}

// A pool's directory as the server sees it, and sessions to it.
class PoolPlace {
 public:
  virtual ~PoolPlace() = default;
  virtual Result<std::unique_ptr<PoolSession>> open() = 0;
  [[nodiscard]] std::string root() const { return dir_.path() + "/pool"; }

 protected:
  PoolPlace() { std::filesystem::create_directory(root()); }
  // `parent`: of its directory.
  explicit PoolPlace(const std::string& parent) : dir_(TempDir::in(parent)) {
    std::filesystem::create_directory(root());
  }
  const TempDir dir_;
};

class PoolInDirectory : public PoolPlace {
 public:
  Result<std::unique_ptr<PoolSession>> open() override { return open_dir_session(root()); }
};

class PoolOnNfs : public PoolPlace {
 public:
  PoolOnNfs() : PoolPlace(SharedNfsServer::get().root()) {}
  Result<std::unique_ptr<PoolSession>> open() override {
    return open_nfs_session(TRY(parse_pool_uri(SharedNfsServer::get().uri(root()))), soon());
  }
};

struct PoolPlaceMaker {
  std::string name;
  std::function<std::unique_ptr<PoolPlace>()> make;
};
inline void PrintTo(const PoolPlaceMaker& each, std::ostream* out) { *out << each.name; }

inline std::vector<PoolPlaceMaker> pool_places() {
  return {{"dir", [] { return std::make_unique<PoolInDirectory>(); }},
          {"nfs", [] { return std::make_unique<PoolOnNfs>(); }}};
}

// What happens to a file behind everybody's back: its times stay what they were.
inline void change_unseen(const std::string& path, const std::function<void()>& change) {
  struct stat before {};
  ASSERT_EQ(0, ::stat(path.c_str(), &before));
  change();
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, path.c_str(), times, 0));
}

// A byte of it is another one then.
inline void damage_unseen(const std::string& path, std::streamoff offset) {
  change_unseen(path, [&] {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(offset);
    const int byte = file.get();
    ASSERT_NE(std::fstream::traits_type::eof(), byte);
    file.seekp(offset);
    file.put(static_cast<char>(~byte));
    ASSERT_TRUE(file.flush().good());
  });
}

// A session to each kind of pool.
class PoolTest : public ::testing::TestWithParam<PoolPlaceMaker> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<PoolSession>> opened = place_->open();
    ASSERT_OK(opened);
    session_ = std::move(opened).value();
  }
  [[nodiscard]] std::string below(const std::string& path) const {
    return place_->root() + "/" + path;
  }

  const std::unique_ptr<PoolPlace> place_ = GetParam().make();
  std::unique_ptr<PoolSession> session_;
};

}  // namespace kvcachefs::testing

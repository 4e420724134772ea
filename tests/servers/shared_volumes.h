// Two mounts on one pool of each kind: what the suites of shared volumes stand on.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "tests/servers/pool_places.h"
#include "tests/servers/volume_on_pool.h"

namespace kvcachefs::testing {

// What Server::read says of a name that is not there.
inline const std::string kMissing = "errno " + std::to_string(ENOENT);

class SharedVolumes : public ::testing::TestWithParam<PoolPlaceMaker> {
 protected:
  SharedVolumes() : place_(GetParam().make()) {}
  void SetUp() override {
    ASSERT_TRUE(TestVolume::wait_for([&] { return knows_both(); }));
  }

  bool knows_both() {
    return a_.is_joined() && b_.is_joined() && a_.nodes() == 2 && b_.nodes() == 2;
  }
  [[nodiscard]] std::string below(const std::string& path) const {
    return place_->root() + "/" + path;
  }
  [[nodiscard]] std::string on_pool(const std::string& path) const {
    std::ifstream file(below(path), std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  [[nodiscard]] bool is_on_pool(const std::string& path) const {
    return std::filesystem::exists(below(path));
  }
  void put_on_pool(const std::string& path, const std::string& bytes) const {
    std::ofstream(below(path), std::ios::binary) << bytes;
  }

  const std::unique_ptr<PoolPlace> place_;
  Server a_{*place_, 1};
  Server b_{*place_, 2, {.writes = PoolWrites::kAll, .owner_uid = 7, .owner_gid = 8}};
};

}  // namespace kvcachefs::testing

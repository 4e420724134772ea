// Names are read anew where directories were renamed or told a layout, beside calls that change them.
#include <linux/fs.h>
#include <stdio.h>

#include <random>
#include <thread>

#include "tests/fakes/seed.h"
#include "tests/unit/fs/known/known_rows.h"

namespace kvcachefs {
namespace {

using testing::expect_true_rows;
using testing::hash_of;
using testing::lmcache_name;
using testing::must;
using testing::rows_in_tables;
using testing::TestVolume;

constexpr std::string_view kModel = "org_model_0123456789ab_r0";

class NamesReadAnew : public ::testing::Test {
 protected:
  // vLLM's: recognised by where it is.
  void store_vllm(InodeNumber model, unsigned number) {
    const std::string hash = hash_of(number);
    const InodeNumber first = directory(model, hash.substr(0, 3));
    const InodeNumber second = directory(first, hash.substr(3, 2) + "_g0");
    volume_.store_file(second, hash + ".bin", "x");
  }
  InodeNumber directory(InodeNumber parent, const std::string& name) {
    const auto found = volume_->lookup(parent, name, kRoot);
    return found.ok() ? found->inode : volume_.mkdir(parent, name);
  }
  void wait() {
    ASSERT_TRUE(TestVolume::wait_for([&] { return !volume_->counts().blocks_behind; }));
    EXPECT_TRUE(must(volume_.catalog().list_unread(0, 1)).empty());
  }
  std::size_t count(const std::string& after) {
    wait();
    expect_true_rows(volume_.catalog(), after);
    return rows_in_tables(volume_.catalog()).blocks.size();
  }
  // Has the keeper write the order, and waits until the learner has what the tables have.
  void expect_same_in_order(const std::string& after) {
    volume_.mkdir(kRootInode, "moved");
    must(volume_->rename(kRootInode, "moved", kRootInode, "moved on", 0, kRoot));
    must(volume_->rmdir(kRootInode, "moved on"));
    const std::size_t blocks = rows_in_tables(volume_.catalog()).blocks.size();
    EXPECT_TRUE(TestVolume::wait_for([&] { return volume_->counts().blocks == blocks; }))
        << after << ": " << volume_->counts().blocks << " of " << blocks;
  }

  TestVolume volume_;
};

TEST_F(NamesReadAnew, AfterARenameOfADirectoryAbove) {
  volume_.start();
  const InodeNumber model = volume_.mkdir(kRootInode, kModel);
  for (unsigned i = 0; i < 600; ++i) store_vllm(model, i);
  EXPECT_EQ(600u, count("stores"));
  must(volume_->rename(kRootInode, kModel, kRootInode, "plain", 0, kRoot));
  EXPECT_EQ(0u, count("a plain name"));
  must(volume_->rename(kRootInode, "plain", kRootInode, kModel, 0, kRoot));
  EXPECT_EQ(600u, count("the model's name"));
  volume_.mkdir(kRootInode, "empty");
  must(volume_->rename(kRootInode, kModel, kRootInode, "empty", RENAME_EXCHANGE, kRoot));
  EXPECT_EQ(0u, count("exchanged"));
}

TEST_F(NamesReadAnew, AfterADirectoryWasTold) {
  volume_.start();
  const InodeNumber top = volume_.mkdir(kRootInode, "top");
  const InodeNumber below = volume_.mkdir(top, "below");
  volume_.store_file(below, "12ab.pt", "x");
  volume_.store_file(top, lmcache_name(1), "x");
  EXPECT_EQ(1u, count("untold"));
  must(volume_->set_xattr(top, kToldXattr, "tensorrt_example", 0, kRoot));
  EXPECT_EQ(1u, count("told"));
  EXPECT_EQ(1u, must(volume_.catalog().list_prefix("12ab", std::nullopt, 2)).size());
  must(volume_->set_xattr(below, kToldXattr, "none", 0, kRoot));
  EXPECT_EQ(0u, count("told none"));
  must(volume_->remove_xattr(below, kToldXattr, kRoot));
  EXPECT_EQ(1u, count("told no longer"));
  must(volume_->remove_xattr(top, kToldXattr, kRoot));
  EXPECT_EQ(1u, count("as in the beginning"));
  EXPECT_TRUE(must(volume_.catalog().list_prefix("12ab", std::nullopt, 2)).empty());
}

TEST_F(NamesReadAnew, AtTheNextStartIfThereWasNoTime) {
  const InodeNumber model = volume_.mkdir(kRootInode, kModel);
  for (unsigned i = 0; i < 50; ++i) store_vllm(model, i);
  must(volume_->rename(kRootInode, kModel, kRootInode, "plain", 0, kRoot));
  volume_.crash_daemon();
  EXPECT_EQ(50u, rows_in_tables(volume_.catalog()).blocks.size());
  EXPECT_TRUE(volume_->counts().blocks_behind);
  volume_.start();
  EXPECT_EQ(0u, count("the next start"));
}

// The row goes with the name, and then the runtime closes what it had created.
TEST_F(NamesReadAnew, ANameThatWentBeforeItsFirstCloseIsForgotten) {
  volume_.start();
  volume_.store_file(kRootInode, lmcache_name(1), "x");
  const Created made = volume_.create(kRootInode, lmcache_name(2));
  must(volume_->unlink(kRootInode, lmcache_name(2)));
  volume_.close(*made.opened.file);
  volume_->forget(made.entry.inode, 1);
  expect_same_in_order("close");
}

// Threads make, move and remove blocks, directories above them and what these are told, while the
// keeper works.
class RandomNames {
 public:
  RandomNames(TestVolume& volume, std::uint64_t seed) : volume_(volume), random_(seed) {
    for (const std::string_view top : kTops) {
      for (const std::string_view name : {kModel, std::string_view("plain")}) {
        const auto path = std::string(top) + "/" + std::string(name);
        tops_.push_back(path);
      }
    }
  }
  void step() {
    const InodeNumber directory = some_directory();
    const InodeNumber other = some_directory();
    const std::string name = some_name();
    switch (random_() % 9) {
      case 0:
      case 1:
      case 2: {
        const auto made = volume_->create(directory, name, 0644, O_RDWR, kRoot);
        if (made.ok()) volume_->release(*made->opened.file);
        break;
      }
      case 3:
        static_cast<void>(volume_->unlink(directory, name).ok());
        break;
      case 4:
      case 5:
        static_cast<void>(volume_->rename(directory, name, other, some_name(), 0, kRoot).ok());
        break;
      case 6: {
        const auto found = volume_->lookup(directory, name, kRoot);
        if (found.ok())
          static_cast<void>(volume_->link(found->inode, other, some_name(), kRoot).ok());
        break;
      }
      case 7: {
        const unsigned flags = random_() % 2 == 0 ? RENAME_EXCHANGE : 0;
        static_cast<void>(
            volume_->rename(top(), leaf_name(), top(), leaf_name(), flags, kRoot).ok());
        break;
      }
      default:
        if (random_() % 2 == 0) {
          static_cast<void>(
              volume_->set_xattr(top(), kToldXattr, some_runtime(), 0, kRoot).ok());
        } else {
          static_cast<void>(volume_->remove_xattr(top(), kToldXattr, kRoot).ok());
        }
    }
  }
  static void make_tops(TestVolume& volume) {
    for (const std::string_view name : kTops) {
      const InodeNumber top = volume.mkdir(kRootInode, name);
      volume.mkdir(volume.mkdir(volume.mkdir(top, kModel), "abc"), "de_g0");
    }
  }

 private:
  static constexpr std::array<std::string_view, 2> kTops = {"one", "two"};

  InodeNumber top() { return must(volume_.resolve(kTops[random_() % 2])); }
  std::string leaf_name() { return random_() % 2 == 0 ? std::string(kModel) : "plain"; }
  std::string some_runtime() {
    constexpr std::array<std::string_view, 4> kRuntimes = {"none", "vllm", "lmcache_fs",
                                                           "tensorrt_example"};
    return std::string(kRuntimes[random_() % kRuntimes.size()]);
  }
  // One that is there when it is asked for; what it is called a moment later is others' business.
  InodeNumber some_directory() {
    const auto leaf = volume_.resolve(tops_[random_() % tops_.size()] + "/abc/de_g0");
    return leaf.ok() && random_() % 4 != 0 ? *leaf : top();
  }
  std::string some_name() {
    const auto number = static_cast<unsigned>(random_() % 12);
    switch (random_() % 4) {
      case 0:
        return lmcache_name(number);
      case 1:
        return lmcache_name(number) + ".tmp";
      case 2:
        return "abcde" + hash_of(number).substr(5) + ".bin";
      default:
        return std::to_string(number) + ".pt";
    }
  }

  TestVolume& volume_;
  std::mt19937_64 random_;
  std::vector<std::string> tops_;
};

TEST_F(NamesReadAnew, ARowNeverOutlivesItsName) {
  const std::uint64_t seed = testing::test_seed();
  RandomNames::make_tops(volume_);
  volume_.start();
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        RandomNames names(volume_, seed + round * 4 + t);
        for (int i = 0; i < 100; ++i) names.step();
      });
    }
    for (std::thread& thread : threads) thread.join();
    count("round " + std::to_string(round));
    expect_same_in_order("round " + std::to_string(round));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace kvcachefs

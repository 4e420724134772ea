// The rows of blocks and prefixes are in the same commit as the names that make them.
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>

#include "fs/known/find_blocks.h"
#include "tests/unit/fs/known/known_rows.h"

namespace kvcachefs {
namespace {

using testing::expect_true_rows;
using testing::hash_of;
using testing::lmcache_name;
using testing::must;
using testing::rows_in_tables;
using testing::TestVolume;

class KnownRows : public ::testing::Test {
 protected:
  // How many blocks the tables have, which are right.
  std::size_t count(const std::string& after) {
    expect_true_rows(volume_.catalog(), after);
    return rows_in_tables(volume_.catalog()).blocks.size();
  }
  void rename(const std::string& from, const std::string& to, unsigned flags = 0) {
    must(volume_->rename(kRootInode, from, kRootInode, to, flags, kRoot));
  }

  TestVolume volume_;
};

TEST_F(KnownRows, ComeWithACreateAndGoWithAnUnlink) {
  const Created made = volume_.create(kRootInode, lmcache_name(1));
  EXPECT_EQ(1u, count("create"));
  volume_.close(*made.opened.file);
  EXPECT_EQ(1u, count("close"));
  must(volume_->make_node(kRootInode, lmcache_name(2), S_IFREG | 0644, 0, kRoot));
  EXPECT_EQ(2u, count("mknod"));
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  EXPECT_EQ(1u, count("unlink"));
  must(volume_->unlink(kRootInode, lmcache_name(2)));
  EXPECT_EQ(0u, count("unlink"));
}

TEST_F(KnownRows, AreNoneOfTemporaries) {
  volume_.store_file(kRootInode, lmcache_name(1) + ".tmp", "x");
  EXPECT_EQ(0u, count("temporary"));
  EXPECT_EQ(0u, volume_->counts().blocks);
  rename(lmcache_name(1) + ".tmp", lmcache_name(1));
  EXPECT_EQ(1u, count("rename"));
  EXPECT_EQ(1u, volume_->counts().blocks);
}

TEST_F(KnownRows, AreNoneOfWhatIsNoFile) {
  volume_.mkdir(kRootInode, lmcache_name(1));
  must(volume_->make_symlink(kRootInode, lmcache_name(2), "x", kRoot));
  must(volume_->make_node(kRootInode, lmcache_name(3), S_IFIFO | 0644, 0, kRoot));
  EXPECT_EQ(0u, count("others"));
}

TEST_F(KnownRows, FollowRenames) {
  volume_.store_file(kRootInode, lmcache_name(1), "1");
  rename(lmcache_name(1), lmcache_name(2));
  EXPECT_EQ(1u, count("another block's name"));
  rename(lmcache_name(2), "plain");
  EXPECT_EQ(0u, count("a plain name"));
  rename("plain", lmcache_name(3));
  EXPECT_EQ(1u, count("a block's name"));
  volume_.store_file(kRootInode, lmcache_name(4), "4");
  rename(lmcache_name(4), lmcache_name(3));
  EXPECT_EQ(1u, count("replaced"));
  volume_.store_file(kRootInode, "plain", "5");
  rename("plain", lmcache_name(3));
  EXPECT_EQ(1u, count("replaced by what was none"));
  volume_.store_file(kRootInode, "plain", "6");
  rename(lmcache_name(3), "plain");
  EXPECT_EQ(0u, count("replaces what is none"));
  EXPECT_EQ(0u, volume_->counts().blocks);
}

TEST_F(KnownRows, FollowExchanges) {
  volume_.store_file(kRootInode, lmcache_name(1), "1");
  volume_.store_file(kRootInode, "plain", "2");
  rename(lmcache_name(1), "plain", RENAME_EXCHANGE);
  EXPECT_EQ(1u, count("with what is none"));
  volume_.store_file(kRootInode, lmcache_name(3), "3");
  rename(lmcache_name(1), lmcache_name(3), RENAME_EXCHANGE);
  EXPECT_EQ(2u, count("with a block"));
  volume_.mkdir(kRootInode, "directory");
  rename(lmcache_name(1), "directory", RENAME_EXCHANGE);
  EXPECT_EQ(1u, count("with a directory"));
}

TEST_F(KnownRows, FollowLinks) {
  const InodeNumber inode = volume_.store_file(kRootInode, "plain", "1");
  must(volume_->link(inode, kRootInode, lmcache_name(1), kRoot));
  must(volume_->link(inode, kRootInode, lmcache_name(2), kRoot));
  EXPECT_EQ(2u, count("links"));
  must(volume_->unlink(kRootInode, "plain"));
  EXPECT_EQ(2u, count("the first name goes"));
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  EXPECT_EQ(1u, count("a link goes"));
  const Created nameless = must(volume_->make_tmpfile(kRootInode, 0644, O_RDWR, kRoot));
  EXPECT_EQ(1u, count("O_TMPFILE"));
  must(volume_->link(nameless.entry.inode, kRootInode, lmcache_name(3), kRoot));
  EXPECT_EQ(2u, count("linked"));
  volume_.close(*nameless.opened.file);
}

TEST_F(KnownRows, AreNoneOfARefusedCall) {
  volume_.store_file(kRootInode, lmcache_name(1), "1");
  volume_.store_file(kRootInode, "plain", "2");
  EXPECT_ERROR(EEXIST, volume_->rename(kRootInode, "plain", kRootInode, lmcache_name(1),
                                       RENAME_NOREPLACE, kRoot));
  volume_.faults().no_space = true;
  EXPECT_ERROR(ENOSPC, volume_->create(kRootInode, lmcache_name(2), 0644, O_RDWR, kRoot));
  volume_.faults().no_space = false;
  volume_.faults().dead = true;
  EXPECT_ERROR(EIO, volume_->unlink(kRootInode, lmcache_name(1)));
  EXPECT_ERROR(EIO,
               volume_->rename(kRootInode, "plain", kRootInode, lmcache_name(3), 0, kRoot));
  volume_.faults().dead = false;
  EXPECT_EQ(1u, count("refusals"));
  EXPECT_EQ(1u, volume_->counts().blocks);
}

TEST_F(KnownRows, GoWithAFileThatIsLost) {
  const InodeNumber inode = volume_.store_file(kRootInode, lmcache_name(1), "1");
  volume_.store_file(kRootInode, lmcache_name(2), "2");
  volume_.settle();
  ASSERT_EQ(0, ::unlink(volume_.backing_path_of(inode).c_str()));
  EXPECT_ERROR(ENOENT, volume_->lookup(kRootInode, lmcache_name(1), kRoot));
  EXPECT_EQ(1u, count("loss"));
}

std::size_t blocks_with_leavings(Catalog& catalog) {
  std::size_t count = 0;
  must(catalog.each_block(
      std::nullopt,
      [&](std::uint64_t, const BlockRecord&) {
        ++count;
        return true;
      },
      [](const std::string& what) { ADD_FAILURE() << what; }));
  return count;
}

TEST_F(KnownRows, AreLeftByARemovedFileUntilItIsReaped) {
  const InodeNumber inode = volume_.store_file(kRootInode, lmcache_name(1), "1");
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  EXPECT_EQ(0u, count("unlink"));
  EXPECT_EQ(1u, blocks_with_leavings(volume_.catalog()));
  EXPECT_EQ(0u, volume_->counts().blocks);
  volume_->forget(inode, 1);
  volume_.settle();
  EXPECT_EQ(0u, blocks_with_leavings(volume_.catalog()));
  EXPECT_FALSE(must(volume_.catalog().next_prefix("")));
}

TEST_F(KnownRows, OfANameMadeAnewOutliveTheFirstFile) {
  const InodeNumber first = volume_.store_file(kRootInode, lmcache_name(1), "1");
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  const InodeNumber second = volume_.store_file(kRootInode, lmcache_name(1), "2");
  EXPECT_EQ(1u, count("made anew"));
  volume_->forget(first, 1);
  volume_.settle();
  EXPECT_EQ(1u, count("first one reaped"));
  EXPECT_EQ(1u, blocks_with_leavings(volume_.catalog()));
  volume_->forget(second, 1);
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  volume_.settle();
  EXPECT_EQ(0u, blocks_with_leavings(volume_.catalog()));
}

TEST_F(KnownRows, AreRemovedWhenTheirDirectoryHasGoneToo) {
  const InodeNumber directory = volume_.mkdir(kRootInode, "d");
  const InodeNumber inode = volume_.store_file(directory, lmcache_name(1), "1");
  must(volume_->unlink(directory, lmcache_name(1)));
  must(volume_->rmdir(kRootInode, "d"));
  volume_->forget(inode, 1);
  volume_->forget(directory, 1);
  volume_.settle();
  EXPECT_EQ(0u, blocks_with_leavings(volume_.catalog()));
}

// The rows of the first file are of another hash than those of the second.
TEST_F(KnownRows, AreRemovedWhenTheNameHasAnotherHashMeanwhile) {
  const InodeNumber directory = volume_.mkdir(kRootInode, "d");
  const InodeNumber first = volume_.store_file(directory, lmcache_name(1), "1");
  must(volume_->unlink(directory, lmcache_name(1)));
  must(volume_->set_xattr(directory, "user.kvcachefs.layout", "llama_cpp", 0, kRoot));
  volume_.store_file(directory, lmcache_name(1), "2");
  EXPECT_EQ(1u, count("another layout"));
  EXPECT_TRUE(must(volume_.catalog().next_prefix("")));
  volume_->forget(first, 1);
  volume_.settle();
  EXPECT_EQ(1u, count("first one reaped"));
  EXPECT_FALSE(must(volume_.catalog().next_prefix("")));
}

TEST_F(KnownRows, SayWhatTheNameOfABlockSaysAmongOthers) {
  const InodeNumber above = volume_.mkdir(kRootInode, "a");
  const InodeNumber inode = volume_.store_file(kRootInode, lmcache_name(1), "1");
  must(volume_->link(inode, kRootInode, "backup", kRoot));
  must(volume_->link(inode, above, "copy", kRoot));
  EXPECT_EQ(hash_of(1), must(volume_->get_xattr(inode, "user.kvcachefs.prefix")));
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  EXPECT_ERROR(ENODATA, volume_->get_xattr(inode, "user.kvcachefs.prefix"));
}

TEST_F(KnownRows, LeadToNoSymlinkOfTheName) {
  volume_.store_file(kRootInode, lmcache_name(1), "1");
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  must(volume_->make_symlink(kRootInode, lmcache_name(1), "/elsewhere", kRoot));
  EXPECT_TRUE(must(find_blocks(volume_.catalog(), hash_of(1))).empty());
}

TEST_F(KnownRows, DoNotComeBackWithARemovedFile) {
  const InodeNumber inode = volume_.store_file(kRootInode, lmcache_name(1), "1");
  must(volume_->unlink(kRootInode, lmcache_name(1)));
  EXPECT_ERROR(ENOENT, volume_->link(inode, kRootInode, lmcache_name(2), kRoot));
}

TEST_F(KnownRows, SayWhichHashANameShows) {
  const InodeNumber inode = volume_.store_file(kRootInode, lmcache_name(1), "1");
  const auto rows = must(volume_.catalog().list_prefix(hash_of(1), std::nullopt, 10));
  ASSERT_EQ(1u, rows.size());
  EXPECT_EQ(lmcache_name(1), rows[0].name);
  EXPECT_EQ(hash_of(1), must(volume_->get_xattr(inode, "user.kvcachefs.prefix")));
  EXPECT_EQ("lmcache_fs", must(volume_->get_xattr(inode, "user.kvcachefs.runtime")));
}

// A thread of this process looks names up in order, as runtimes do.
void look_up_all(TestVolume& volume, unsigned count) {
  for (unsigned i = 1; i <= count; ++i)
    static_cast<void>(volume->lookup(kRootInode, lmcache_name(i), kRoot).ok());
}

// A lookup ends at the first directory that is not there; the first block of that is the one meant.
TEST_F(KnownRows, AreOfTheLookupsThatEndedAtAMissingDirectory) {
  constexpr unsigned kBlocks = 12;
  const InodeNumber model = volume_.mkdir(kRootInode, "m_1a2b3c4d5e6f_r0");
  const auto digits = [](unsigned i) {  // of block i; every second one has its first directory
    char text[32];
    std::snprintf(text, sizeof text, "%03x%02x0123456789a", i * 0x5b & 0xfff, i);
    return std::string(text);
  };
  std::map<unsigned, InodeNumber> made;
  for (unsigned i = 0; i < kBlocks; i += 2) {
    const std::string first = digits(i).substr(0, 3);
    made[i] = volume_.mkdir(model, first);
    volume_.store_file(volume_.mkdir(made[i], "ff_g0"), first + "ff0123456789a.bin", "x");
  }
  for (unsigned i = 0; i < kBlocks; ++i) {
    const std::string name = digits(i);
    const Result<Entry> found = i % 2 == 0
                                    ? volume_->lookup(made[i], name.substr(3, 2) + "_g0", kRoot)
                                    : volume_->lookup(model, name.substr(0, 3), kRoot);
    EXPECT_FALSE(found.ok());
  }
  std::map<unsigned, InodeNumber> blocks;
  for (unsigned n = 0; n < kBlocks; ++n) {
    const unsigned i = (n * 7 + 5) % kBlocks;  // in another order
    const std::string name = digits(i);
    if (i % 2 == 1) made[i] = volume_.mkdir(model, name.substr(0, 3));
    const InodeNumber last = volume_.mkdir(made[i], name.substr(3, 2) + "_g0");
    blocks[i] = volume_.store_file(last, name + ".bin", "x");
  }
  for (unsigned i = 1; i < kBlocks; ++i)
    EXPECT_EQ(digits(i - 1), must(volume_->get_xattr(blocks[i], "user.kvcachefs.parent"))) << i;
  // Lookups of what stays away are of no file.
  EXPECT_EQ(kBlocks + kBlocks / 2, count("all"));
}

// What a store looks up in the directory that it has made is no other block.
TEST_F(KnownRows, AreLinkedByStoresThatMakeTheirDirectories) {
  constexpr unsigned kBlocks = 6;
  const InodeNumber model = volume_.mkdir(kRootInode, "m_1a2b3c4d5e6f_r0");
  std::string before;
  for (unsigned i = 1; i <= kBlocks; ++i) {
    const std::string first = "12" + std::to_string(i);
    const std::string name = first + "ab0123456789a";
    const InodeNumber above = volume_.mkdir(model, first);
    EXPECT_FALSE(volume_->lookup(above, "ab_g0", kRoot).ok());
    const InodeNumber block =
        volume_.store_file(volume_.mkdir(above, "ab_g0"), name + ".bin", "x");
    if (i > 1) {
      EXPECT_EQ(before, must(volume_->get_xattr(block, "user.kvcachefs.parent"))) << i;
    }
    before = name;
  }
}

TEST_F(KnownRows, KeepTheLearnedOrderOverARestart) {
  constexpr unsigned kBlocks = 20;
  look_up_all(volume_, kBlocks);
  for (unsigned i = 1; i <= kBlocks; ++i) volume_.store_file(kRootInode, lmcache_name(i), "x");
  look_up_all(volume_, kBlocks);
  look_up_all(volume_, kBlocks);
  volume_.start();
  volume_.stop_cleanly();
  volume_.run();
  std::map<std::uint64_t, BlockRecord> written;
  const auto read = [&](std::map<std::uint64_t, BlockRecord>& records) {
    must(volume_.catalog().each_block(
        std::nullopt,
        [&](std::uint64_t block, const BlockRecord& record) {
          records[block] = record;
          return true;
        },
        [](const std::string& what) { ADD_FAILURE() << what; }));
  };
  read(written);
  ASSERT_EQ(kBlocks, written.size());
  volume_.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return !volume_->counts().blocks_behind; }));
  EXPECT_EQ(kBlocks, volume_->counts().blocks);
  for (unsigned i = 2; i <= kBlocks; ++i) {
    const InodeNumber inode = must(volume_.resolve(lmcache_name(i)));
    EXPECT_EQ(hash_of(i - 1), must(volume_->get_xattr(inode, "user.kvcachefs.parent"))) << i;
  }
  volume_.stop_cleanly();
  volume_.run();
  std::map<std::uint64_t, BlockRecord> again;
  read(again);
  ASSERT_EQ(kBlocks, again.size());
  for (const auto& [block, record] : written) {
    EXPECT_NE(0u, record.birth);
    EXPECT_NE(0u, record.stamp);
    EXPECT_EQ(record.parent, again[block].parent);
    EXPECT_EQ(record.birth, again[block].birth);
    EXPECT_LE(record.stamp, again[block].stamp);  // resolve() was a lookup
  }
}

}  // namespace
}  // namespace kvcachefs

// Each class of damage: found without --repair, which changes nothing; mended with it; and then
// there is nothing left, and the good files read.
#include "fs/fsck.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "backend/base/file_lock.h"
#include "fs/device_list.h"
#include "fs/known/block_number.h"
#include "fs/state_dir.h"
#include "metadata/keys.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::read_file;
using testing::TestVolume;
using testing::write_file;

struct Outcome {
  int exit_code = 0;
  std::string text;
};

class Fsck : public ::testing::Test {
 protected:
  // /good "good", /dir/bad "bad bytes", /dir/sub/deep "deep", all sealed, and some others.
  Fsck() : volume_({.rocksdb = true, .devices = 1, .volume = {}}) {
    good_ = volume_.store_file(kRootInode, "good", "good");
    dir_ = volume_.mkdir(kRootInode, "dir");
    bad_ = volume_.store_file(dir_, "bad", "bad bytes");
    sub_ = volume_.mkdir(dir_, "sub");
    deep_ = volume_.store_file(sub_, "deep", "deep");
    must(volume_->link(bad_, sub_, "second"));
    must(volume_->make_symlink(dir_, "symlink", "good", kRoot));
    must(volume_->set_xattr(good_, "user.x", "y", 0, {}));
    volume_.start();
    volume_.stop_cleanly();
    must(write_device_list(state(), volume_.device_paths()));
  }

  [[nodiscard]] const std::string& state() { return volume_.directory(); }

  Outcome check(bool repair = false) { return check_state(state(), repair); }
  static Outcome check_state(const std::string& directory, bool repair) {
    char* text = nullptr;
    std::size_t length = 0;
    std::FILE* out = ::open_memstream(&text, &length);
    const FsckResult result = run_fsck({.state = directory, .repair = repair}, out);
    std::fclose(out);
    Outcome outcome{result.exit_code, std::string(text, length) + result.problem};
    ::free(text);
    return outcome;
  }

  // Changes the catalog of the stopped volume.
  void edit(const std::function<void(Catalog&, Edit&)>& change) {
    const auto catalog = must(Catalog::create(open_store()));
    Edit edit;
    change(*catalog, edit);
    must(catalog->commit(std::move(edit)));
  }
  void put_row(Table table, const std::string& key, const std::string& value) {
    WriteBatch batch;
    batch.put(table, key, value);
    must(open_store()->write(batch));
  }
  void remove_row(Table table, const std::string& key) {
    WriteBatch batch;
    batch.remove(table, key);
    must(open_store()->write(batch));
  }
  InodeRecord record_of(InodeNumber inode) {
    return *must(must(Catalog::create(open_store()))->find_inode(inode));
  }
  DentryRecord dentry_of(InodeNumber parent, std::string_view name) {
    return *must(must(Catalog::create(open_store()))->find_dentry(parent, name));
  }
  std::string backing_of(InodeNumber inode) {
    return volume_.backing_path(record_of(inode).object);
  }

  // Finds `problem`, only that (`count`), and mends it; the good files read afterwards.
  void expect_found_and_mended(const std::string& problem, int count = 1) {
    const Outcome found = check();
    EXPECT_EQ(4, found.exit_code) << found.text;
    EXPECT_NE(std::string::npos, found.text.find(problem)) << found.text;
    EXPECT_NE(std::string::npos, found.text.find("\n" + std::to_string(count) +
                                                 (count == 1 ? " problem: " : " problems: ")))
        << found.text;
    // Nothing was changed: it finds the same again.
    EXPECT_EQ(found.text, check().text);
    const Outcome mended = check(true);
    EXPECT_EQ(1, mended.exit_code) << mended.text;
    EXPECT_NE(std::string::npos, mended.text.find(problem)) << mended.text;
    const Outcome after = check();
    EXPECT_EQ(0, after.exit_code) << after.text;
    EXPECT_TRUE(after.text.starts_with("clean: ")) << after.text;
    volume_.run();
    EXPECT_EQ("good", must(volume_.read_path("good")));
  }

  TestVolume volume_;
  InodeNumber good_ = 0;
  InodeNumber dir_ = 0;
  InodeNumber bad_ = 0;
  InodeNumber sub_ = 0;
  InodeNumber deep_ = 0;

 private:
  std::unique_ptr<Store> open_store() {
    return must(RocksdbStore::open(
        state() + "/db", {.cache_bytes = 8 << 20, .write_buffer_bytes = 8 << 20}, false));
  }
};

TEST_F(Fsck, SaysThatACleanVolumeIsClean) {
  const Outcome outcome = check();
  EXPECT_EQ(0, outcome.exit_code);
  EXPECT_EQ("clean: 7 inodes, 3 objects\n", outcome.text);
  EXPECT_EQ(0, check(true).exit_code);
}

TEST_F(Fsck, LeavesWhatTheNextStartSettles) {
  volume_.run();
  volume_.store_file(kRootInode, "published", "x");
  volume_.open(good_, O_RDWR);
  volume_.create(kRootInode, "unpublished");
  volume_.create(kRootInode, "lost with the power");
  must(volume_->make_tmpfile(kRootInode, 0600, O_RDWR, kRoot));
  volume_.open(bad_, O_RDONLY);
  EXPECT_OK(volume_->unlink(dir_, "bad"));
  const InodeNumber deep = must(volume_.resolve("dir/sub/deep"));
  volume_.open(deep, O_WRONLY | O_TRUNC);
  write_file(volume_.backing_path(must(volume_.catalog().next_id())), "stray");
  ASSERT_EQ(
      0,
      ::unlink(volume_.backing_path_of(must(volume_.resolve("lost with the power"))).c_str()));
  volume_.kill();
  EXPECT_EQ(0, check().exit_code) << check().text;
  EXPECT_EQ(0, check(true).exit_code);
  volume_.run();
  EXPECT_EQ("deep", must(volume_.read_path("dir/sub/deep")));
  EXPECT_ERROR(ENOENT, volume_.resolve("unpublished"));
  volume_.settle();
  volume_.stop_cleanly();
  EXPECT_EQ(0, check().exit_code) << check().text;
}

// ---- it cannot run ----

TEST_F(Fsck, RefusesAMountedVolumeWithThePid) {
  std::string problem;
  auto held = StateDir::open(state(), StateDir::IfMissing::kFail, problem);
  ASSERT_OK(held);
  held->keep();
  const Outcome outcome = check();
  EXPECT_EQ(8, outcome.exit_code);
  EXPECT_NE(std::string::npos, outcome.text.find("pid " + std::to_string(::getpid())))
      << outcome.text;
}

TEST_F(Fsck, RefusesWithoutADatabaseOrADevice) {
  EXPECT_EQ(8, check_state(state() + "/none", false).exit_code);
  std::filesystem::rename(state() + "/db", state() + "/away");
  const Outcome outcome = check(true);
  EXPECT_EQ(8, outcome.exit_code);
  EXPECT_NE(std::string::npos, outcome.text.find("database")) << outcome.text;
  std::filesystem::rename(state() + "/away", state() + "/db");
  std::filesystem::rename(volume_.device_paths().front(), state() + "/away");
  EXPECT_EQ(8, check(true).exit_code);
  std::filesystem::rename(state() + "/away", volume_.device_paths().front());
  EXPECT_EQ(0, check().exit_code);
}

TEST_F(Fsck, LooksBesideTheStateDirectoryWithoutAList) {
  // As by default: the state directory is in the device directory.
  const std::string device = volume_.device_paths().front();
  const std::string inner = device + "/state";
  std::filesystem::create_directory(inner);
  std::filesystem::permissions(inner, std::filesystem::perms::owner_all);
  std::filesystem::rename(state() + "/db", inner + "/db");
  EXPECT_EQ(0, check_state(inner, false).exit_code);
}

// ---- names ----

TEST_F(Fsck, MakesADentryAnewFromTheListing) {
  remove_row(Table::kDentries, keys::named(dir_, "bad"));
  expect_found_and_mended("name \"bad\" in directory " + std::to_string(dir_) +
                          " has no record");
  EXPECT_EQ("bad bytes", must(volume_.read_path("dir/bad")));
}

TEST_F(Fsck, MakesADentryAnewThatDoesNotRead) {
  put_row(Table::kDentries, keys::named(dir_, "bad"), "garbage");
  expect_found_and_mended("has a record that does not read");
  EXPECT_EQ("bad bytes", must(volume_.read_path("dir/bad")));
}

TEST_F(Fsck, MakesAListingEntryAnew) {
  remove_row(Table::kListings, keys::listing(dir_, dentry_of(dir_, "bad").cookie));
  expect_found_and_mended("is not in its directory's listing");
  const auto names = volume_.names_in(dir_);
  EXPECT_EQ(1, std::count(names.begin(), names.end(), "bad"));
}

TEST_F(Fsck, MakesAListingEntryAnewThatDoesNotRead) {
  put_row(Table::kListings, keys::listing(dir_, dentry_of(dir_, "bad").cookie), "\x07");
  expect_found_and_mended("does not read", 2);
  EXPECT_EQ(3u, volume_.names_in(dir_).size());
}

TEST_F(Fsck, RemovesAListingEntryOfNoName) {
  edit([&](Catalog& catalog, Edit& change) {
    const auto cookie = must(catalog.next_id());
    change.put_dentry(dir_, "ghost", {.inode = bad_, .type = DT_REG, .cookie = cookie});
  });
  remove_row(Table::kDentries, keys::named(dir_, "ghost"));
  remove_row(Table::kBackReferences, keys::back_reference(bad_, dir_, "ghost"));
  expect_found_and_mended("is not that of name \"ghost\"");
  EXPECT_EQ(3u, volume_.names_in(dir_).size());
}

TEST_F(Fsck, MakesABackReferenceAnew) {
  remove_row(Table::kBackReferences, keys::back_reference(bad_, dir_, "bad"));
  expect_found_and_mended("has no back reference");
}

TEST_F(Fsck, RemovesABackReferenceOfNoName) {
  put_row(Table::kBackReferences, keys::back_reference(bad_, dir_, "ghost"), "");
  expect_found_and_mended("has no such name");
}

TEST_F(Fsck, RemovesANameOfNoInode) {
  edit([&](Catalog& catalog, Edit& change) {
    const auto cookie = must(catalog.next_id());
    change.put_dentry(dir_, "ghost", {.inode = 55'555, .type = DT_REG, .cookie = cookie});
  });
  expect_found_and_mended("leads to inode 55555, which does not exist");
  EXPECT_ERROR(ENOENT, volume_.resolve("dir/ghost"));
}

TEST_F(Fsck, CorrectsAWrongType) {
  edit([&](Catalog& catalog, Edit& change) {
    DentryRecord dentry = *must(catalog.find_dentry(dir_, "bad"));
    dentry.type = DT_FIFO;
    change.put_dentry(dir_, "bad", dentry);
  });
  expect_found_and_mended("says a wrong type");
}

TEST_F(Fsck, RemovesANameThatIsNone) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(good_));
    ++record.nlink;
    change.put_inode(good_, record);
    change.put_dentry(dir_, "a/b",
                      {.inode = good_, .type = DT_REG, .cookie = must(catalog.next_id())});
  });
  expect_found_and_mended("is no name that a user can have given", 2);
}

// A record made for such a directory would be beyond the given numbers at the next check.
TEST_F(Fsck, RemovesANameOfADirectoryThatWasNeverGivenItsNumber) {
  edit([&](Catalog& catalog, Edit& change) {
    for (const InodeNumber number : {InodeNumber{0}, InodeNumber{1} << 40})
      change.put_dentry(dir_, "ghost " + std::to_string(number),
                        {.inode = number, .type = DT_DIR, .cookie = must(catalog.next_id())});
  });
  expect_found_and_mended("leads to inode 0, which does not exist", 2);
}

TEST_F(Fsck, GivesANameAPlaceThatADirectoryHas) {
  DentryRecord dentry = dentry_of(dir_, "bad");
  remove_row(Table::kListings, keys::listing(dir_, dentry.cookie));
  dentry.cookie = std::uint64_t{1} << 40;
  put_row(Table::kDentries, keys::named(dir_, "bad"), encode(dentry));
  expect_found_and_mended("is not in its directory's listing");
}

TEST_F(Fsck, LeavesThePlaceOfAnotherNameWhenItDropsOne) {
  DentryRecord dentry = dentry_of(dir_, "bad");
  dentry.inode = 55'555;
  put_row(Table::kDentries, keys::named(dir_, "ghost"), encode(dentry));
  expect_found_and_mended("leads to inode 55555, which does not exist");
}

// Its directory waited for a name that is no directory's.
TEST_F(Fsck, RemovesANameInADirectoryWhoseOwnNameGoes) {
  const InodeNumber lost = record_of(good_).object;
  edit([&](Catalog& catalog, Edit& change) {
    change.put_dentry(lost, "ghost",
                      {.inode = good_, .type = DT_REG, .cookie = must(catalog.next_id())});
    change.put_dentry(dir_, "lost",
                      {.inode = lost, .type = DT_REG, .cookie = must(catalog.next_id())});
  });
  expect_found_and_mended("is in a directory that does not exist", 2);
}

// ---- inodes ----

TEST_F(Fsck, CorrectsLinkCounts) {
  edit([&](Catalog& catalog, Edit& change) {
    for (const auto& [inode, links] : {std::pair{bad_, 7u}, {dir_, 2u}, {good_, 2u}}) {
      InodeRecord record = *must(catalog.find_inode(inode));
      record.nlink = links;
      change.put_inode(inode, record);
    }
  });
  expect_found_and_mended("counts 7 links and has 2", 3);
  EXPECT_EQ(2u, volume_.stat_of(bad_).st_nlink);
  EXPECT_EQ(3u, volume_.stat_of(dir_).st_nlink);
  EXPECT_EQ(1u, volume_.stat_of(good_).st_nlink);
}

TEST_F(Fsck, HasAFileWithoutANameRemoved) {
  const std::string backing = backing_of(deep_);
  edit([&](Catalog& catalog, Edit& change) {
    change.remove_dentry(sub_, "deep", *must(catalog.find_dentry(sub_, "deep")));
  });
  expect_found_and_mended("has no name");
  volume_.settle();
  EXPECT_FALSE(TestVolume::exists(backing));
}

TEST_F(Fsck, MovesAnApplicationsFileWithoutANameToLostAndFound) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(deep_));
    record.flags |= kInodeKeep;
    change.put_inode(deep_, record);
    change.remove_dentry(sub_, "deep", *must(catalog.find_dentry(sub_, "deep")));
  });
  expect_found_and_mended("has no name");
  EXPECT_EQ("deep", must(volume_.read_path("lost+found/#" + std::to_string(deep_))));
}

TEST_F(Fsck, DropsTheNamesOfAnInodeThatDoesNotRead) {
  put_row(Table::kInodes, keys::number(bad_), "garbage");
  // Its record, its two names, and its object.
  expect_found_and_mended("record of inode " + std::to_string(bad_) + " does not read", 4);
  EXPECT_ERROR(ENOENT, volume_.resolve("dir/bad"));
  EXPECT_ERROR(ENOENT, volume_.resolve("dir/sub/second"));
  EXPECT_EQ("deep", must(volume_.read_path("dir/sub/deep")));
}

TEST_F(Fsck, MakesADirectorysRecordAnew) {
  put_row(Table::kInodes, keys::number(dir_), "garbage");
  expect_found_and_mended("leads to directory " + std::to_string(dir_), 3);
  EXPECT_EQ("bad bytes", must(volume_.read_path("dir/bad")));
  EXPECT_EQ(static_cast<mode_t>(S_IFDIR | 0700), volume_.stat_of(dir_).st_mode);
}

TEST_F(Fsck, MakesTheRootAnew) {
  remove_row(Table::kInodes, keys::number(kRootInode));
  expect_found_and_mended("the root directory has no record", 2);
}

TEST_F(Fsck, TakesASecondNameOffADirectory) {
  edit([&](Catalog& catalog, Edit& change) {
    change.put_dentry(kRootInode, "again",
                      {.inode = sub_, .type = DT_DIR, .cookie = must(catalog.next_id())});
    InodeRecord root = *must(catalog.find_inode(kRootInode));
    ++root.nlink;
    change.put_inode(kRootInode, root);
  });
  expect_found_and_mended("has a second name", 2);
}

TEST_F(Fsck, MovesADirectoryWithoutANameToLostAndFound) {
  edit([&](Catalog& catalog, Edit& change) {
    change.remove_dentry(dir_, "sub", *must(catalog.find_dentry(dir_, "sub")));
    InodeRecord record = *must(catalog.find_inode(dir_));
    --record.nlink;
    change.put_inode(dir_, record);
  });
  expect_found_and_mended("directory " + std::to_string(sub_) + " has no name");
  EXPECT_EQ("deep", must(volume_.read_path("lost+found/#" + std::to_string(sub_) + "/deep")));
}

TEST_F(Fsck, OpensACircleOfDirectories) {
  edit([&](Catalog& catalog, Edit& change) {
    change.remove_dentry(kRootInode, "dir", *must(catalog.find_dentry(kRootInode, "dir")));
    change.put_dentry(sub_, "up",
                      {.inode = dir_, .type = DT_DIR, .cookie = must(catalog.next_id())});
  });
  // And the link counts of the root and of the lower one.
  expect_found_and_mended("lies in a circle", 2);
  EXPECT_EQ("deep",
            must(volume_.read_path("lost+found/#" + std::to_string(dir_) + "/sub/deep")));
}

TEST_F(Fsck, CorrectsTheTableOfUnsealedInodes) {
  put_row(Table::kUnsealed, keys::number(bad_), "");
  put_row(Table::kUnsealed, keys::number(44'444), "");
  expect_found_and_mended("in the table of unsealed ones, and is sealed", 2);
}

TEST_F(Fsck, PutsAnUnsealedInodeInItsTable) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(bad_));
    record.state = DataState::kMutable;
    change.put_inode(bad_, record);
  });
  expect_found_and_mended("is not in the table of unsealed ones");
}

TEST_F(Fsck, CorrectsOrphans) {
  edit([&](Catalog& catalog, Edit& change) {
    change.put_orphan_inode(good_);
    change.put_orphan_inode(33'333);
    change.put_orphan_object(must(catalog.find_inode(bad_))->object, 0);
    change.put_orphan_object(66'666, 9);
  });
  expect_found_and_mended("has a name and is an orphan", 4);
  EXPECT_EQ("bad bytes", must(volume_.read_path("dir/bad")));
}

TEST_F(Fsck, RemovesAnOrphanWhoseRecordDoesNotRead) {
  // The hash is longer than the record.
  put_row(Table::kOrphans, keys::lettered(keys::kOrphanInode, 33'333),
          std::string(8, '\0') + "\x40short");
  expect_found_and_mended("does not read");
}

TEST_F(Fsck, FindsANamelessInodeThatIsNoOrphan) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(deep_));
    record.nlink = 0;
    change.put_inode(deep_, record);
    change.remove_dentry(sub_, "deep", *must(catalog.find_dentry(sub_, "deep")));
  });
  expect_found_and_mended("has no name and is no orphan");
}

TEST_F(Fsck, RemovesXattrsOfNobody) {
  put_row(Table::kXattrs, keys::named(22'222, "user.x"), "y");
  put_row(Table::kXattrs, keys::named(deep_, "user.x"), "y");
  expect_found_and_mended("belongs to inode 22222, which does not exist", 2);
  EXPECT_EQ("y", must(volume_->get_xattr(deep_, "user.x")));
}

TEST_F(Fsck, RaisesTheRecordOfGivenNumbers) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(good_));
    record.nlink = 0;
    record.state = DataState::kNone;
    record.object = kNoObject;
    record.mode = S_IFIFO | 0600;
    change.put_inode(10'000'000, record);
    change.put_orphan_inode(10'000'000);
  });
  expect_found_and_mended("10000000 is in use");
  EXPECT_LT(10'000'000u, volume_.mkdir(kRootInode, "new"));
}

// ---- data ----

TEST_F(Fsck, DropsTheNamesOfALostFile) {
  ASSERT_EQ(0, ::unlink(backing_of(bad_).c_str()));
  expect_found_and_mended("has lost its backing file");
  EXPECT_ERROR(ENOENT, volume_.resolve("dir/bad"));
  EXPECT_ERROR(ENOENT, volume_.resolve("dir/sub/second"));
}

TEST_F(Fsck, QuarantinesAFileOfAnotherSize) {
  const std::string backing = backing_of(bad_);
  ASSERT_EQ(0, ::truncate(backing.c_str(), 3));
  expect_found_and_mended("is not as long as it was sealed");
  EXPECT_FALSE(TestVolume::exists(backing));
  EXPECT_EQ("bad", read_file(volume_.device_paths().front() + "/quarantine/" +
                             std::filesystem::path(backing).filename().string()));
}

// As the mount takes it.
TEST_F(Fsck, LeavesAFileThatWhoHasItOpenSinceAnEarlierRunMayWriteOn) {
  edit([&](Catalog& catalog, Edit& edit) {
    InodeRecord record = *must(catalog.find_inode(bad_));
    record.flags |= kInodeMayGrow;
    edit.put_inode(bad_, record);
  });
  std::ofstream(backing_of(bad_), std::ios::app) << "and more";
  EXPECT_EQ(0, check().exit_code) << check().text;
}

TEST_F(Fsck, QuarantinesAFileWhoseBytesAreNotTheSealedOnes) {
  // As a disk does it: the bytes change and nothing else. The times cannot be set back on a
  // running system, so the record takes the new ones.
  const std::string backing = backing_of(bad_);
  {
    const UniqueFd fd(::open(backing.c_str(), O_WRONLY));
    ASSERT_EQ(1, ::pwrite(fd.get(), "B", 1, 0));
  }
  edit([&](Catalog& catalog, Edit& change) {
    struct stat status {};
    ASSERT_EQ(0, ::stat(backing.c_str(), &status));
    InodeRecord record = *must(catalog.find_inode(bad_));
    record.stamp.mtime = to_nanos(status.st_mtim);
    record.stamp.ctime = to_nanos(status.st_ctim);
    change.put_inode(bad_, record);
  });
  expect_found_and_mended("does not have the bytes that were sealed");
  EXPECT_ERROR(ENOENT, volume_.resolve("dir/bad"));
}

TEST_F(Fsck, ForgivesAFileThatAUserChangedAfterItsSeal) {
  const UniqueFd fd(::open(backing_of(bad_).c_str(), O_WRONLY));
  ASSERT_EQ(1, ::pwrite(fd.get(), "B", 1, 0));
  const timespec times[2] = {{.tv_sec = 9, .tv_nsec = 0}, {.tv_sec = 9, .tv_nsec = 0}};
  ASSERT_EQ(0, ::futimens(fd.get(), times));
  EXPECT_EQ(0, check().exit_code) << check().text;
}

TEST_F(Fsck, MakesAnObjectRecordAnewAndHasTheFileSealed) {
  put_row(Table::kObjects, keys::number(record_of(bad_).object), "garbage");
  expect_found_and_mended("is missing", 2);
  EXPECT_EQ("bad bytes", must(volume_.read_path("dir/bad")));
  volume_.settle();
  EXPECT_EQ(DataState::kSealed, volume_.state_of(bad_));
}

TEST_F(Fsck, HasAFileWithoutChecksumsSealedAnew) {
  edit([&](Catalog& catalog, Edit& change) {
    const ObjectId id = must(catalog.find_inode(bad_))->object;
    ObjectRecord object = *must(catalog.find_object(id));
    object.chunk_crc32c.clear();
    change.put_object(id, object);
  });
  expect_found_and_mended("is sealed without its checksums");
  volume_.settle();
  EXPECT_EQ(DataState::kSealed, volume_.state_of(bad_));
}

TEST_F(Fsck, HasAnObjectOfNoFileRemoved) {
  ObjectId id = 0;
  edit([&](Catalog& catalog, Edit& change) {
    id = must(catalog.next_id());
    change.put_object(id, {.inode = good_, .device = 0, .chunk_crc32c = {}, .sealed = {}});
  });
  write_file(volume_.backing_path(id), "nobody's");
  expect_found_and_mended("belongs to no file");
  volume_.settle();
  EXPECT_FALSE(TestVolume::exists(volume_.backing_path(id)));
}

TEST_F(Fsck, RemovesAReferenceToPreviousBytesThatAreGone) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(bad_));
    record.previous_object = 77'777;
    record.previous_state = DataState::kSealed;
    change.put_inode(bad_, record);
  });
  expect_found_and_mended("leads nowhere");
}

TEST_F(Fsck, RemovesABackingFileOfNobody) {
  const std::string stray = volume_.backing_path(0xabcdef);
  write_file(stray, "stray");
  expect_found_and_mended("backing file 0000000000abcdef");
  EXPECT_FALSE(TestVolume::exists(stray));
}

TEST_F(Fsck, LeavesAFileThatIsNotOurs) {
  const std::string path = volume_.device_paths().front() + "/objects/00/notes.txt";
  write_file(path, "someone's");
  const Outcome outcome = check(true);
  EXPECT_EQ(4, outcome.exit_code);
  EXPECT_NE(std::string::npos, outcome.text.find("objects/00/notes.txt is not of kvcachefs"))
      << outcome.text;
  EXPECT_EQ("someone's", read_file(path));
}

TEST_F(Fsck, TakesDataOffWhatIsNoFile) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(dir_));
    record.state = DataState::kMutable;
    change.put_inode(dir_, record);
    change.put_unsealed(dir_);
  });
  expect_found_and_mended("is no regular file and has data", 2);
}

TEST_F(Fsck, GivesAStateToAFileWithoutOne) {
  edit([&](Catalog& catalog, Edit& change) {
    InodeRecord record = *must(catalog.find_inode(bad_));
    record.state = DataState::kNone;
    change.put_inode(bad_, record);
  });
  expect_found_and_mended("has no state");
  EXPECT_EQ("bad bytes", must(volume_.read_path("dir/bad")));
}

TEST_F(Fsck, RemovesRowsWithKeysThatDoNotRead) {
  for (const Table table :
       {Table::kInodes, Table::kObjects, Table::kDentries, Table::kListings,
        Table::kBackReferences, Table::kXattrs, Table::kOrphans, Table::kUnsealed})
    put_row(table, "xyz", "");
  expect_found_and_mended("does not read", 8);
}

// ---- blocks and prefixes

class FsckBlocks : public Fsck {
 protected:
  FsckBlocks() {
    volume_.run();
    block_ = volume_.store_file(kRootInode, kName, "block");
    volume_.start();
    volume_.stop_cleanly();
  }

  const std::string kHash = std::string(64, 'a');
  const std::string kName = kHash + "_model.bin";
  const std::string kBlockKey = keys::number(block_number(kRootInode, kName));
  const std::string kPrefixKey = keys::prefix(kHash, kRootInode, kName);
  InodeNumber block_ = 0;
};

TEST_F(FsckBlocks, AreClean) {
  const Outcome outcome = check();
  EXPECT_EQ(0, outcome.exit_code) << outcome.text;
}

TEST_F(FsckBlocks, BlockWithoutAName) {
  put_row(Table::kBlocks, keys::number(7), encode(BlockRecord{.inode = good_, .hash = {}}));
  expect_found_and_mended(fmt::format("block 0000000000000007 is no name of inode {}", good_));
}

TEST_F(FsckBlocks, BlockThatDoesNotRead) {
  put_row(Table::kBlocks, keys::number(7), "?");
  expect_found_and_mended("does not read");
}

TEST_F(FsckBlocks, PrefixOfNoBlock) {
  put_row(Table::kPrefixes, keys::prefix("abcd", kRootInode, "good"), "");
  expect_found_and_mended("prefix abcd in \"good\" in directory 1 is of no block");
}

TEST_F(FsckBlocks, NamesWithoutTheirRows) {
  remove_row(Table::kPrefixes, kPrefixKey);
  remove_row(Table::kBlocks, kBlockKey);
  expect_found_and_mended("do not have all names");
  volume_.start();
  while (volume_->counts().blocks_behind) std::this_thread::yield();
  volume_.stop_cleanly();
  edit([&](Catalog& catalog, Edit&) {
    EXPECT_TRUE(must(catalog.list_unread(0, 1)).empty());
    EXPECT_EQ(block_, must(catalog.find_block(block_number(kRootInode, kName)))->inode);
    EXPECT_EQ(1u, must(catalog.list_prefix(kHash, std::nullopt, 9)).size());
  });
}

}  // namespace
}  // namespace kvcachefs

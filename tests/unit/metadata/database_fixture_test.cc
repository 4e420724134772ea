// Reads a database that an older build has written (tests/fixtures/db-v1.tar.gz), and finds in
// it what that build put there (db-v1.txt).
//
// A new fixture, after a change of the format, is written by
//   KVCACHEFS_FIXTURE_OUT=DIR unit_tests --gtest_also_run_disabled_tests
//   --gtest_filter=DatabaseFixture.DISABLED_Write
// The old ones stay.
#include <dirent.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "backend/base/random.h"
#include "metadata/catalog.h"
#include "metadata/rocksdb_store.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/tests_dir.h"

namespace kvcachefs {
namespace {

const std::filesystem::path kFixtures =
    std::filesystem::path(testing::tests_dir()) / "fixtures";

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    if (c > ' ' && c < 0x7f && c != '\\') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

std::string describe(const DataStamp& stamp) {
  return fmt::format("{}/{}/{}", stamp.size, stamp.mtime, stamp.ctime);
}

// Everything in a catalog, one record a line.
std::string describe(Catalog& catalog) {
  std::string text = "uuid " + format_uuid(*catalog.uuid()) + "\n";
  const RunMarker run = *catalog.run_marker();
  text +=
      fmt::format("run clean={} boot={} mounts={}\n", run.clean, run.boot_id, run.mount_ids);
  for (const DeviceUuid& device : *catalog.devices())
    text += "device " + format_uuid(device) + "\n";
  const Catalog::Damaged damaged = [&](const std::string& what) {
    text += "DAMAGED " + what + "\n";
  };
  EXPECT_OK(catalog.each_inode(
      [&](InodeNumber number, const InodeRecord& r) {
        text += fmt::format(
            "inode {} mode={:o} uid={} gid={} nlink={} rdev={} generation={} flags={} atime={} "
            "mtime={} ctime={} "
            "btime={} state={} object={} previous={}/{} stamp={} target={}\n",
            number, r.mode, r.uid, r.gid, r.nlink, r.rdev, r.generation, r.flags, r.atime,
            r.mtime, r.ctime, r.btime, static_cast<int>(r.state), r.object, r.previous_object,
            static_cast<int>(r.previous_state), describe(r.stamp), printable(r.target));
        for (const std::string& name : *catalog.list_xattrs(number)) {
          text += fmt::format("xattr {} {}={}\n", number, printable(name),
                              printable(**catalog.find_xattr(number, name)));
        }
        return true;
      },
      damaged));
  EXPECT_OK(catalog.each_object(
      [&](ObjectId id, const ObjectRecord& r) {
        text += fmt::format("object {} inode={} device={} sealed={} crc32c=", id, r.inode,
                            r.device, describe(r.sealed));
        for (const std::uint32_t crc : r.chunk_crc32c) text += fmt::format("{:08x},", crc);
        text += "\n";
        return true;
      },
      damaged));
  EXPECT_OK(catalog.each_dentry(
      [&](InodeNumber parent, const std::string& name, const DentryRecord& r) {
        text += fmt::format("dentry {} {} inode={} type={} cookie={}\n", parent,
                            printable(name), r.inode, r.type, r.cookie);
        return true;
      },
      damaged));
  EXPECT_OK(catalog.each_listing(
      [&](InodeNumber parent, const DirEntry& e) {
        text += fmt::format("listing {} cookie={} inode={} type={} {}\n", parent, e.cookie,
                            e.inode, e.type, printable(e.name));
        return true;
      },
      damaged));
  EXPECT_OK(catalog.each_back_reference(
      [&](InodeNumber inode, InodeNumber parent, const std::string& name) {
        text += fmt::format("link {} {} {}\n", inode, parent, printable(name));
        return true;
      }));
  for (const InodeNumber number : *catalog.list_unsealed(0, 1000))
    text += fmt::format("unsealed {}\n", number);
  for (const InodeNumber number : *catalog.list_orphan_inodes(0, 1000))
    text += fmt::format("orphan inode {}\n", number);
  for (const OrphanObject& orphan : *catalog.list_orphan_objects(0, 1000)) {
    text += fmt::format("orphan object {} device={}\n", orphan.id, orphan.device);
  }
  return text;
}

std::unique_ptr<Catalog> open_catalog(const std::string& path, bool create) {
  auto store = RocksdbStore::open(path, {}, create);
  EXPECT_OK(store);
  if (!store.ok()) return nullptr;
  auto catalog = Catalog::create(std::move(*store));
  EXPECT_OK(catalog);
  return catalog.ok() ? std::move(*catalog) : nullptr;
}

TEST(DatabaseFixture, ADatabaseOfFormat1Reads) {
  const testing::TempDir dir;
  const std::string unpack =
      fmt::format("tar -xzf '{}' -C '{}'", (kFixtures / "db-v1.tar.gz").string(), dir.path());
  ASSERT_EQ(0, std::system(unpack.c_str()));
  const std::unique_ptr<Catalog> catalog = open_catalog(dir / "db-v1", false);
  ASSERT_NE(nullptr, catalog);
  EXPECT_EQ(testing::read_file(kFixtures / "db-v1.txt"), describe(*catalog));
  // Ids go on after all that were given.
  EXPECT_GE(*catalog->next_id(), 65538u);
  EXPECT_EQ(2u, catalog->last_run_ids().first);
}

InodeRecord regular(ObjectId object, DataState state) {
  InodeRecord record;
  record.mode = S_IFREG | 0640;
  record.uid = 1000;
  record.gid = 1000;
  record.nlink = 1;
  record.generation = 1;
  record.atime = record.mtime = record.ctime = record.btime =
      INT64_C(1'700'000'000'000'000'001);
  record.state = state;
  record.object = object;
  return record;
}

void fill(Catalog& catalog, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    Edit edit;
    const InodeNumber inode = *catalog.next_id();
    const ObjectId object = *catalog.next_id();
    InodeRecord record = regular(object, static_cast<DataState>(1 + i % 4));
    ObjectRecord bytes;
    bytes.inode = inode;
    bytes.device = static_cast<std::uint32_t>(i % 2);
    if (record.state != DataState::kUnpublished)
      record.stamp = {.size = 300'000, .mtime = 2, .ctime = 3};
    if (record.state == DataState::kSealed) {
      bytes.sealed = record.stamp;
      bytes.chunk_crc32c = {0xdeadbeef, static_cast<std::uint32_t>(i)};
    } else {
      edit.put_unsealed(inode);
    }
    if (record.state == DataState::kMutable) {
      record.flags = kInodeFsynced | kInodeKeep;
      record.previous_object = object - 1;
      record.previous_state = DataState::kSealed;
    }
    edit.put_inode(inode, record);
    edit.put_object(object, bytes);
    edit.put_dentry(kRootInode, fmt::format("block-{:04}\n\xff", i),
                    {.inode = inode, .type = DT_REG, .cookie = *catalog.next_id()});
    ASSERT_OK(catalog.commit(std::move(edit)));
  }
}

// Some of the records end up in table files, some in the log, as in a run that was killed.
TEST(DatabaseFixture, DISABLED_Write) {
  const char* out = std::getenv("KVCACHEFS_FIXTURE_OUT");
  ASSERT_NE(nullptr, out);
  const testing::TempDir dir;
  {
    const auto catalog = open_catalog(dir / "db", true);
    InodeRecord root;
    root.mode = S_IFDIR | 0755;
    root.nlink = 3;
    InodeRecord link;
    link.mode = S_IFLNK | 0777;
    link.nlink = 1;
    link.target = "to/there";
    link.flags = kInodeHasXattr;
    InodeRecord device;
    device.mode = S_IFCHR | 0600;
    device.nlink = 2;
    device.rdev = 0x103;
    Edit edit;
    edit.put_inode(kRootInode, root);
    const InodeNumber link_number = *catalog->next_id();
    edit.put_inode(link_number, link);
    edit.put_dentry(kRootInode, "link",
                    {.inode = link_number, .type = DT_LNK, .cookie = *catalog->next_id()});
    edit.put_xattr(link_number, "trusted.x", std::string_view("a\0b", 3));
    const InodeNumber device_number = *catalog->next_id();
    edit.put_inode(device_number, device);
    edit.put_dentry(kRootInode, "null",
                    {.inode = device_number, .type = DT_CHR, .cookie = *catalog->next_id()});
    edit.put_dentry(kRootInode, "null again",
                    {.inode = device_number, .type = DT_CHR, .cookie = *catalog->next_id()});
    edit.put_orphan_inode(*catalog->next_id());
    edit.put_orphan_object(*catalog->next_id(), 1);
    ASSERT_OK(catalog->commit(std::move(edit)));
    ASSERT_OK(catalog->add_device({1, 2, 3}));
    ASSERT_OK(catalog->add_device({4, 5, 6}));
    ASSERT_OK(catalog->set_run_marker(
        {.clean = false, .boot_id = "boot", .mount_ids = "unique:1:2:3"}));
    fill(*catalog, 0, 40);
  }
  {
    const auto catalog = open_catalog(dir / "db", false);
    fill(*catalog, 40, 20);
    ASSERT_OK(catalog->sync());
    std::filesystem::copy(dir / "db", std::filesystem::path(out) / "db-v1",
                          std::filesystem::copy_options::recursive);
    testing::write_file(std::string(out) + "/db-v1.txt", describe(*catalog));
  }
}

}  // namespace
}  // namespace kvcachefs

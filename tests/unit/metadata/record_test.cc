#include "metadata/record.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <string>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

std::string from_hex(std::string_view text) {
  std::string bytes;
  int high = -1;
  for (const char c : text) {
    if (c == ' ' || c == '\n') continue;
    const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (high < 0) {
      high = digit;
    } else {
      bytes += static_cast<char>(high << 4 | digit);
      high = -1;
    }
  }
  return bytes;
}

InodeRecord full_inode() {
  InodeRecord record;
  record.mode = S_IFLNK | 0777;
  record.uid = 1000;
  record.gid = 1001;
  record.nlink = 2;
  record.rdev = 0x0102030405060708;
  record.generation = 7;
  record.flags = kInodeFsynced | kInodeHasXattr;
  record.atime = 1;
  record.mtime = -1;
  record.ctime = 1'700'000'000'123'456'789;
  record.btime = 4;
  record.state = DataState::kMutable;
  record.object = 0x1122334455667788;
  record.previous_object = 9;
  record.previous_state = DataState::kSealed;
  record.stamp = {.size = 4096, .mtime = 5, .ctime = 6};
  record.target = "to/there";
  return record;
}

InodeRecord plain_inode() {
  InodeRecord record;
  record.mode = S_IFDIR | 0755;
  record.nlink = 2;
  return record;
}

ObjectRecord full_object() {
  ObjectRecord record;
  record.inode = 3;
  record.device = 1;
  record.chunk_crc32c = {0xdeadbeef, 1};
  record.sealed = {.size = 300'000, .mtime = 5, .ctime = 6};
  return record;
}

// Bytes that a released version has written. When one of these fails, the format has changed:
// that needs a new version in metadata/format.h, and code that reads the old one.
constexpr std::string_view kGoldenFullInode =
    "01 1f ff a1 00 00 e8 03 00 00 e9 03 00 00 02 00 00 00 07 00 00 00 11 00 00 00"
    "01 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff 15 cd 85 3d fe 9c 97 17"
    "04 00 00 00 00 00 00 00 04 08 07 06 05 04 03 02 01 88 77 66 55 44 33 22 11"
    "09 00 00 00 00 00 00 00 03 00 10 00 00 00 00 00 00 05 00 00 00 00 00 00 00"
    "06 00 00 00 00 00 00 00 74 6f 2f 74 68 65 72 65";
constexpr std::string_view kGoldenPlainInode =
    "01 00 ed 41 00 00 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
    "00 00 00 00 00 00 00 00 00";
constexpr std::string_view kGoldenFullObject =
    "01 01 03 00 00 00 00 00 00 00 01 00 00 00 e0 93 04 00 00 00 00 00 05 00 00 00 00 00 00 00"
    "06 00 00 00 00 00 00 00 ef be ad de 01 00 00 00";
constexpr std::string_view kGoldenPlainObject = "01 00 03 00 00 00 00 00 00 00 00 00 00 00";
constexpr std::string_view kGoldenDentry =
    "01 08 34 12 00 00 00 00 00 00 78 56 00 00 00 00 00 00";

TEST(InodeRecord, HoldsItsWriter) {
  InodeRecord record = plain_inode();
  record.mode = S_IFREG | 0644;
  const std::string without = encode(record);
  record.writer = {.boot = 0xdeadbeef, .number = 4711, .began = 0x1122334455667788};
  const std::string with = encode(record);
  EXPECT_EQ(without.size() + 16, with.size());
  const Result<InodeRecord> decoded = decode_inode(with);
  ASSERT_OK(decoded);
  EXPECT_EQ(record, *decoded);
  EXPECT_ERROR(EBADMSG, decode_inode(std::string_view(with).substr(0, with.size() - 1)));
}

TEST(Record, InodesHaveTheBytesOfVersion1) {
  EXPECT_EQ(from_hex(kGoldenFullInode), encode(full_inode()));
  EXPECT_EQ(from_hex(kGoldenPlainInode), encode(plain_inode()));
  EXPECT_EQ(full_inode(), *decode_inode(from_hex(kGoldenFullInode)));
  EXPECT_EQ(plain_inode(), *decode_inode(from_hex(kGoldenPlainInode)));
}

TEST(Record, ObjectsHaveTheBytesOfVersion1) {
  ObjectRecord plain;
  plain.inode = 3;
  EXPECT_EQ(from_hex(kGoldenFullObject), encode(full_object()));
  EXPECT_EQ(from_hex(kGoldenPlainObject), encode(plain));
  EXPECT_EQ(full_object(), *decode_object(from_hex(kGoldenFullObject)));
  EXPECT_EQ(plain, *decode_object(from_hex(kGoldenPlainObject)));
}

TEST(Record, DentriesHaveTheBytesOfVersion1) {
  const DentryRecord record{.inode = 0x1234, .type = DT_REG, .cookie = 0x5678};
  EXPECT_EQ(from_hex(kGoldenDentry), encode(record));
  EXPECT_EQ(record, *decode_dentry(from_hex(kGoldenDentry)));
}

BlockRecord full_block() {
  return {.inode = 0x1234,
          .has_parent = true,
          .hinted = true,
          .parent = 0x5678,
          .birth = 9,
          .stamp = 10,
          .hash = "-0af"};
}

constexpr std::string_view kGoldenFullBlock =
    "01 03 34 12 00 00 00 00 00 00 78 56 00 00 00 00 00 00"
    "09 00 00 00 00 00 00 00 0a 00 00 00 00 00 00 00 2d 30 61 66";
constexpr std::string_view kGoldenPlainBlock =
    "01 00 34 12 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";

TEST(Record, BlocksHaveTheBytesOfVersion1) {
  BlockRecord plain;
  plain.inode = 0x1234;
  EXPECT_EQ(from_hex(kGoldenFullBlock), encode(full_block()));
  EXPECT_EQ(from_hex(kGoldenPlainBlock), encode(plain));
  EXPECT_EQ(full_block(), *decode_block(from_hex(kGoldenFullBlock)));
  EXPECT_EQ(plain, *decode_block(from_hex(kGoldenPlainBlock)));
}

TEST(Record, PoolCopiesHaveTheBytesOfVersion2) {
  const PoolCopy copy{
      .fileid = 0x1122, .path_hash = 0x3344, .size = 4096, .mtime = -1, .keep = true};
  const std::string bytes = from_hex(
      "02 22 11 00 00 00 00 00 00 44 33 00 00 00 00 00 00 00 10 00 00 00 00 00 00"
      "ff ff ff ff ff ff ff ff 01");
  EXPECT_EQ(bytes, encode(copy));
  EXPECT_EQ(copy, *decode_pool_copy(bytes));
  EXPECT_EQ(EBADMSG, decode_pool_copy(bytes + "x").error().code);
  EXPECT_EQ(EBADMSG, decode_pool_copy("\3" + bytes.substr(1)).error().code);
  EXPECT_EQ(EBADMSG, decode_pool_copy(bytes.substr(0, bytes.size() - 1) + "\2").error().code);
  // Of format 5.
  PoolCopy not_kept = copy;
  not_kept.keep = false;
  EXPECT_EQ(not_kept, *decode_pool_copy("\1" + bytes.substr(1, bytes.size() - 2)));
}

TEST(Record, TombstonesHaveTheBytesOfVersion1) {
  const Tombstone tombstone{.fileid = 0x1122, .is_directory = true};
  const std::string bytes = from_hex("01 01 22 11 00 00 00 00 00 00");
  EXPECT_EQ(bytes, encode(tombstone));
  EXPECT_EQ(tombstone, *decode_tombstone(bytes));
  EXPECT_EQ(EBADMSG, decode_tombstone(bytes.substr(1)).error().code);
  EXPECT_EQ(EBADMSG, decode_tombstone("\1\2" + bytes.substr(2)).error().code);
}

TEST(Record, OwnerChangesHaveTheBytesOfVersion2) {
  const OwnerChange change{.fileid = 0x1122, .uid = 3, .gid = 4, .mode = 0750, .told = 5};
  const std::string bytes =
      from_hex("02 22 11 00 00 00 00 00 00 07 05 03 00 00 00 04 00 00 00 e8 01 00 00");
  const std::string version_1 =
      from_hex("01 22 11 00 00 00 00 00 00 07 03 00 00 00 04 00 00 00 e8 01 00 00");
  OwnerChange without_told = change;
  without_told.told = 0;
  EXPECT_EQ(without_told, *decode_owner_change(version_1));
  EXPECT_EQ(bytes, encode(change));
  EXPECT_EQ(change, *decode_owner_change(bytes));
  EXPECT_EQ(EBADMSG, decode_owner_change(bytes.substr(1)).error().code);
  EXPECT_EQ(EBADMSG, decode_owner_change(bytes + "x").error().code);
  std::string too_much = bytes;
  too_much[20] = 0x10;  // 010750
  EXPECT_EQ(EBADMSG, decode_owner_change(too_much).error().code);
  too_much = bytes;
  too_much[9] = 0x1f;  // to be kept, and not
  EXPECT_EQ(EBADMSG, decode_owner_change(too_much).error().code);
  too_much[9] = 0x27;
  EXPECT_EQ(EBADMSG, decode_owner_change(too_much).error().code);
  too_much = bytes;
  too_much[10] = 0x8;  // told a word that there is not
  EXPECT_EQ(EBADMSG, decode_owner_change(too_much).error().code);
  const OwnerChange group{.fileid = 1, .gid = 4};
  EXPECT_EQ(group, *decode_owner_change(encode(group)));
  const OwnerChange kept{.fileid = 1, .mode = 0600, .keep = true};
  EXPECT_EQ(kept, *decode_owner_change(encode(kept)));
  const OwnerChange let_go{.fileid = 1, .keep = false};
  EXPECT_EQ(let_go, *decode_owner_change(encode(let_go)));
}

TEST(Record, SealedEmptyFilesHaveAStampAndNoChecksums) {
  ObjectRecord record;
  record.inode = 3;
  record.sealed = {.size = 0, .mtime = 5, .ctime = 6};
  EXPECT_EQ(record, *decode_object(encode(record)));
}

TEST(Record, RefusesEveryOtherLength) {
  const std::string inode = encode(full_inode());
  // A target has no length of its own: what is cut off must cut into the fixed part to be seen.
  for (std::size_t length = 0; length <= inode.size() - full_inode().target.size(); ++length) {
    EXPECT_ERROR(EBADMSG, decode_inode(inode.substr(0, length))) << length;
  }
  const std::string plain = encode(plain_inode());
  EXPECT_ERROR(EBADMSG, decode_inode(plain + "x"));
  const std::string object = encode(full_object());
  for (std::size_t length = 0; length < object.size(); ++length) {
    const bool whole_checksums = length >= 38 && (length - 38) % 4 == 0;
    EXPECT_ERROR(whole_checksums ? 0 : EBADMSG, decode_object(object.substr(0, length)))
        << length;
  }
  const std::string dentry = encode(DentryRecord{.inode = 1, .type = DT_DIR, .cookie = 2});
  for (std::size_t length = 0; length < dentry.size(); ++length) {
    EXPECT_ERROR(EBADMSG, decode_dentry(dentry.substr(0, length))) << length;
  }
  EXPECT_ERROR(EBADMSG, decode_dentry(dentry + "x"));
  const std::string block = encode(full_block());
  for (std::size_t length = 0; length < block.size() - full_block().hash.size(); ++length) {
    EXPECT_ERROR(EBADMSG, decode_block(block.substr(0, length))) << length;
  }
  EXPECT_ERROR(EBADMSG, decode_block(block + std::string(126, 'a')));
}

TEST(Record, RefusesUnknownVersionsFlagsStatesAndTypes) {
  const auto with = [](std::string bytes, std::size_t at, char value) {
    bytes[at] = value;
    return bytes;
  };
  const std::string inode = encode(full_inode());
  EXPECT_ERROR(EBADMSG, decode_inode(with(inode, 0, 0)));
  EXPECT_ERROR(EBADMSG, decode_inode(with(inode, 0, 2)));
  EXPECT_ERROR(EBADMSG, decode_inode(with(inode, 1, 0x3f))) << "a part of the future";
  EXPECT_ERROR(EBADMSG, decode_inode(with(inode, 3, 0x31))) << "no such file type";
  EXPECT_ERROR(EBADMSG, decode_inode(with(inode, 23, 2))) << "a flag of the future";
  EXPECT_ERROR(EBADMSG, decode_inode(with(inode, 58, 6))) << "no such state";
  EXPECT_ERROR(EBADMSG, decode_inode(with(inode, 83, 6))) << "no such state before";
  const std::string object = encode(full_object());
  EXPECT_ERROR(EBADMSG, decode_object(with(object, 0, 2)));
  EXPECT_ERROR(EBADMSG, decode_object(with(object, 1, 3)));
  const std::string dentry = encode(DentryRecord{.inode = 1, .type = DT_DIR, .cookie = 2});
  EXPECT_ERROR(EBADMSG, decode_dentry(with(dentry, 0, 2)));
  EXPECT_ERROR(EBADMSG, decode_dentry(with(dentry, 1, DT_WHT)));
  const std::string block = encode(full_block());
  EXPECT_ERROR(EBADMSG, decode_block(with(block, 0, 2)));
  EXPECT_ERROR(EBADMSG, decode_block(with(block, 1, 5))) << "a part of the future";
  EXPECT_ERROR(EBADMSG, decode_block(with(block, 1, 2))) << "a hint without a parent";
  EXPECT_ERROR(EBADMSG, decode_block(with(block, block.size() - 1, 0))) << "no hash";
}

TEST(Record, RefusesATargetThatNoSystemCallTakes) {
  InodeRecord record = full_inode();
  record.target = std::string(4095, 't');
  const std::string longest = encode(record);
  EXPECT_OK(decode_inode(longest));
  EXPECT_ERROR(EBADMSG, decode_inode(longest + "t"));
}

// Whatever decodes is exactly what encode() writes: no two byte strings mean the same.
TEST(Record, WhatDecodesEncodesToTheSameBytes) {
  std::mt19937_64 random(testing::test_seed());
  int decoded = 0;
  for (int round = 0; round < 200'000; ++round) {
    const std::string records[] = {
        encode(full_inode()), encode(full_object()),
        encode(DentryRecord{.inode = 1, .type = DT_REG, .cookie = 2}), encode(full_block())};
    std::string bytes = records[round % 4];
    const auto edits = random() % 4;
    for (std::uint64_t i = 0; i < edits; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (const auto inode = decode_inode(bytes); inode.ok()) {
      ASSERT_EQ(bytes, encode(*inode));
      ++decoded;
    }
    if (const auto object = decode_object(bytes); object.ok()) {
      ASSERT_EQ(bytes, encode(*object));
      ++decoded;
    }
    if (const auto dentry = decode_dentry(bytes); dentry.ok()) {
      ASSERT_EQ(bytes, encode(*dentry));
      ++decoded;
    }
    if (const auto block = decode_block(bytes); block.ok()) {
      ASSERT_EQ(bytes, encode(*block));
      ++decoded;
    }
  }
  EXPECT_GT(decoded, 1000);
}

}  // namespace
}  // namespace kvcachefs

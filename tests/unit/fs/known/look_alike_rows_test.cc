// Names that merely look like a block's cost what plain ones of the same length cost: the same rows,
// the same bytes, nothing in the order.
#include <array>

#include "tests/unit/fs/known/known_rows.h"

namespace kvcachefs {
namespace {

using testing::hash_of;
using testing::must;
using testing::TestVolume;

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'f') c = static_cast<char>(c - 'a' + 'A');
  }
  text.front() = 'F';  // a hash may be without letters
  return text;
}

// Forms of names, each of a block but for one thing.
std::string look_alike(unsigned form, unsigned number) {
  const std::string hash = hash_of(number);
  switch (form) {
    case 0:
      return "org-SEP-model@1@0@" + upper(hash) + "@bfloat16.data";
    case 1:
      return "org-SEP-model@1@0@" + hash + "0@bfloat16.data";  // 65 digits
    case 2:
      return "org-SEP-model@1@0@" + hash + "@bfloat16.bata";
    case 3:
      return hash + "_org-model_0.bim";
    case 4:
      return hash.substr(0, 63) + "_org-model_0_1.bin";  // an odd number of digits
    case 5:
      return "org-SEP-model@0x01000100@0@" + hash.substr(0, 63) + ".data";
    default:
      return upper(hash) + "_org-model_0_1.bin";
  }
}
constexpr unsigned kForms = 7;

struct Size {
  std::array<std::size_t, kTableCount> rows{};
  std::array<std::size_t, kTableCount> bytes{};
  std::uint64_t order_bytes = 0;
  std::uint64_t blocks = 0;

  friend bool operator==(const Size&, const Size&) = default;
};

Size size_of(TestVolume& volume) {
  Size size{.order_bytes = volume->counts().order_bytes, .blocks = volume->counts().blocks};
  for (std::size_t table = 0; table < kTableCount; ++table) {
    must(volume.store().scan(static_cast<Table>(table), "", "",
                             [&](std::string_view key, std::string_view value) {
                               ++size.rows[table];
                               size.bytes[table] += key.size() + value.size();
                               return true;
                             }));
  }
  return size;
}

// As a runtime: looked up, stored under a temporary name, renamed, looked up, read; one in four
// removed.
void use(TestVolume& volume, const std::string& name, unsigned number) {
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, name, kRoot));
  volume.store_file(kRootInode, name + ".tmp", "x");
  must(volume->rename(kRootInode, name + ".tmp", kRootInode, name, 0, kRoot));
  const InodeNumber inode = must(volume->lookup(kRootInode, name, kRoot)).inode;
  EXPECT_EQ("x", must(volume.read(inode)));
  EXPECT_ERROR(ENODATA, volume->get_xattr(inode, "user.kvcachefs.prefix"));
  EXPECT_ERROR(ENODATA, volume->get_xattr(inode, "user.kvcachefs.parent"));
  if (number % 4 == 0) must(volume->unlink(kRootInode, name));
}

TEST(LookAlikeRows, AreThoseOfPlainNames) {
  constexpr unsigned kNames = 300;
  TestVolume alike;
  TestVolume plain;
  for (unsigned form = 0; form < kForms; ++form) {
    for (unsigned i = 0; i < kNames; ++i) {
      const std::string name = look_alike(form, i);
      use(alike, name, i);
      std::string other = "plain-" + std::to_string(form) + "-" + std::to_string(i) + "-";
      other.append(name.size() - other.size(), 'z');
      use(plain, other, i);
    }
  }
  const Size size = size_of(alike);
  EXPECT_EQ(size.rows, size_of(plain).rows);
  EXPECT_EQ(size.bytes, size_of(plain).bytes);
  EXPECT_EQ(size.order_bytes, size_of(plain).order_bytes);
  EXPECT_EQ(0u, size.blocks);
  EXPECT_EQ(0u, size.rows[static_cast<std::size_t>(Table::kBlocks)]);
  EXPECT_EQ(0u, size.rows[static_cast<std::size_t>(Table::kPrefixes)]);
}

}  // namespace
}  // namespace kvcachefs

// The keys of every table, built and taken apart. FORMAT.md has the same in words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backend/base/wire.h"
#include "metadata/record.h"

namespace kvcachefs::keys {

inline constexpr std::string_view kFormat = "format";
inline constexpr std::string_view kUuid = "uuid";
inline constexpr std::string_view kIds = "ids";
inline constexpr std::string_view kRun = "run";
inline constexpr std::string_view kCut = "cut";
inline constexpr std::string_view kClock = "clock";
inline constexpr std::string_view kDevicePrefix = "device/";
inline constexpr std::string_view kSealedPrefix = "sealed/";
inline constexpr std::string_view kTold = "told";
inline constexpr std::string_view kToldPolicy = "told_policy";
inline constexpr std::string_view kUnreadPrefix = "unread/";
inline constexpr std::string_view kPool = "pool";
inline constexpr std::string_view kMetadata = "metadata";

inline constexpr char kOrphanInode = 'i';
inline constexpr char kOrphanObject = 'o';

// Pool copies: by inode, and from the server's number to the inode. Pool queue: files to be published by inode,
// names to be taken away by path.
inline constexpr char kCopyOfInode = 'i';
inline constexpr char kCopyByFileid = 'f';
inline constexpr char kToPublish = 'p';
inline constexpr char kTombstone = 't';
inline constexpr char kOwnerChange = 'o';

[[nodiscard]] inline std::string number(std::uint64_t value) {
  std::string key;
  wire::put_be64(key, value);
  return key;
}

// Inodes, objects, unsealed, blocks: the number alone. nullopt: not such a key.
[[nodiscard]] inline std::optional<std::uint64_t> to_number(std::string_view key) noexcept {
  if (key.size() != 8) return std::nullopt;
  return wire::get_be64(key);
}

// Dentries (parent, name) and xattrs (inode, name).
[[nodiscard]] inline std::string named(std::uint64_t owner, std::string_view name) {
  std::string key;
  key.reserve(8 + name.size());
  wire::put_be64(key, owner);
  key += name;
  return key;
}
struct Named {
  std::uint64_t owner;
  std::string_view name;
};
[[nodiscard]] inline std::optional<Named> to_named(std::string_view key) noexcept {
  if (key.size() <= 8) return std::nullopt;
  return Named{wire::get_be64(key), key.substr(8)};
}

// Listings (parent, cookie).
[[nodiscard]] inline std::string listing(InodeNumber parent, std::uint64_t cookie) {
  std::string key;
  key.reserve(16);
  wire::put_be64(key, parent);
  wire::put_be64(key, cookie);
  return key;
}
struct Listing {
  InodeNumber parent;
  std::uint64_t cookie;
};
[[nodiscard]] inline std::optional<Listing> to_listing(std::string_view key) noexcept {
  if (key.size() != 16) return std::nullopt;
  return Listing{wire::get_be64(key), wire::get_be64(key.substr(8))};
}

// Back references (inode, parent, name).
[[nodiscard]] inline std::string back_reference(InodeNumber inode, InodeNumber parent,
                                                std::string_view name) {
  std::string key;
  key.reserve(16 + name.size());
  wire::put_be64(key, inode);
  wire::put_be64(key, parent);
  key += name;
  return key;
}
struct BackReference {
  InodeNumber inode;
  InodeNumber parent;
  std::string_view name;
};
[[nodiscard]] inline std::optional<BackReference> to_back_reference(
    std::string_view key) noexcept {
  if (key.size() <= 16) return std::nullopt;
  return BackReference{wire::get_be64(key), wire::get_be64(key.substr(8)), key.substr(16)};
}

// Orphans, pool copies, what is to be published: a letter for the kind, then the number.
[[nodiscard]] inline std::string lettered(char kind, std::uint64_t value) {
  std::string key(1, kind);
  wire::put_be64(key, value);
  return key;
}
[[nodiscard]] inline std::optional<std::uint64_t> to_lettered(std::string_view key) noexcept {
  if (key.size() != 9) return std::nullopt;
  return wire::get_be64(key.substr(1));
}

// Prefixes (hash, parent, name). A hash has no NUL, so that all rows of one are together.
[[nodiscard]] inline std::string prefix(std::string_view hash, InodeNumber parent,
                                        std::string_view name) {
  std::string key;
  key.reserve(hash.size() + 9 + name.size());
  key += hash;
  key += '\0';
  wire::put_be64(key, parent);
  key += name;
  return key;
}
struct Prefix {
  std::string_view hash;
  InodeNumber parent;
  std::string_view name;
};
[[nodiscard]] inline std::optional<Prefix> to_prefix(std::string_view key) noexcept {
  const std::size_t end = key.find('\0');
  if (end == std::string_view::npos || end == 0 || key.size() <= end + 9) return std::nullopt;
  return Prefix{key.substr(0, end), wire::get_be64(key.substr(end + 1)), key.substr(end + 9)};
}

// What copies the server has under a number: a letter, that number, the inode.
[[nodiscard]] inline std::string by_fileid(std::uint64_t fileid, InodeNumber inode) {
  std::string key = lettered(kCopyByFileid, fileid);
  wire::put_be64(key, inode);
  return key;
}
[[nodiscard]] inline std::optional<InodeNumber> to_inode_by_fileid(
    std::string_view key) noexcept {
  if (key.size() != 17) return std::nullopt;
  return wire::get_be64(key.substr(9));
}

// A letter, then a path.
[[nodiscard]] inline std::string lettered_path(char kind, std::string_view path) {
  std::string key(1, kind);
  key += path;
  return key;
}

// Directories below which the names are to be read for blocks.
[[nodiscard]] inline std::string unread(InodeNumber directory) {
  std::string key(kUnreadPrefix);
  wire::put_be64(key, directory);
  return key;
}

[[nodiscard]] inline std::string of_device(std::string_view prefix, std::uint32_t index) {
  std::string key(prefix);
  for (int shift = 24; shift >= 0; shift -= 8) {
    key += static_cast<char>(index >> shift & 0xff);
  }
  return key;
}
[[nodiscard]] inline std::string device(std::uint32_t index) {
  return of_device(kDevicePrefix, index);
}
[[nodiscard]] inline std::string sealed(std::uint32_t index) {
  return of_device(kSealedPrefix, index);
}

}  // namespace kvcachefs::keys

// Sizes, shares, durations, UUIDs and addresses as users write them, and the values of our
// xattrs: every text gives a value in its bounds, or an error.
#include "backend/base/units.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "backend/base/random.h"
#include "fs/known/direct_io.h"
#include "fs/known/file_policy.h"
#include "fs/known/known_name.h"
#include "fs/known/pool_writes.h"
#include "fs/known/tenants.h"
#include "fs/metrics_address.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

bool read_units(std::string_view text) {
  using namespace std::chrono_literals;
  bool accepted = false;
  if (const auto size = parse_size(text, 10, kTiB); size.ok()) {
    accepted = true;
    require(*size >= 10 && *size <= kTiB);
    require(!format_size(*size).empty());
    // What was read reads the same as a plain number.
    const auto again = parse_size(std::to_string(*size), 10, kTiB);
    require(again.ok() && *again == *size);
  }
  if (const auto limit = parse_size_limit(text, 1, kTiB); limit.ok()) {
    accepted = true;
    require((limit->percent == 0) != (limit->bytes == 0));
    require(limit->percent <= 100);
    require(limit->percent == 0 || limit->of(UINT64_MAX) > 0);
    require(limit->percent == 0 || limit->of(kTiB) <= kTiB);
  }
  if (const auto duration = parse_duration(text, 1ms, 1h); duration.ok()) {
    accepted = true;
    require(*duration >= 1ms && *duration <= 1h);
    require(!format_duration(*duration).empty());
  }
  if (const auto uuid = parse_uuid(text)) {
    accepted = true;
    require(parse_uuid(format_uuid(*uuid)) == uuid);
  }
  if (const auto address = parse_metrics_address(text)) {
    accepted = true;
    require(address->port != 0 && !address->host.empty());
    const auto again =
        parse_metrics_address("[" + address->host + "]:" + std::to_string(address->port));
    require(again && again->host == address->host && again->port == address->port);
  }
  return accepted;
}

constexpr std::array<std::string_view, 9> kXattrs = {
    kToldXattr,     kPolicyXattr,     kTtlXattr,    kShareXattr,           kQuotaXattr,
    kDirectIoXattr, kPoolWritesXattr, kParentXattr, "user.kvcachefs.model"};

bool is_ttl(std::string_view text) {
  const auto ttl = parse_ttl(text);
  require(!ttl.ok() || (ttl->count() >= 1 && ttl->count() <= 10LL * 365 * 24 * 3600));
  return ttl.ok();
}
bool is_share(std::string_view text) {
  const auto share = parse_share(text);
  require(!share.ok() || (share->percent == 0 ? share->bytes >= kMiB : share->percent <= 100));
  return share.ok();
}
bool is_quota(std::string_view text) {
  const auto quota = parse_quota(text);
  require(!quota.ok() || *quota >= kMiB);
  return quota.ok();
}
// What a name is given for reads back as that name.
template <class Parse>
bool is_word(std::string_view text, Parse parse) {
  const auto value = parse(text);
  require(!value || name_of(*value) == text);
  return value.has_value();
}

bool is_value(std::string_view xattr, std::string_view value) {
  if (xattr == kToldXattr) return is_word(value, parse_runtime);
  if (xattr == kPolicyXattr) return is_word(value, parse_policy);
  if (xattr == kTtlXattr) return is_ttl(value);
  if (xattr == kShareXattr) return is_share(value);
  if (xattr == kQuotaXattr) return is_quota(value);
  if (xattr == kDirectIoXattr) return is_word(value, parse_direct_io);
  if (xattr == kPoolWritesXattr) return is_word(value, parse_pool_writes);
  return false;
}

// A directory takes what reads, and a socket nothing.
bool tell(std::string_view xattr, std::string_view value) {
  InodeRecord inode;
  inode.mode = S_IFDIR | 0755;
  const Result<void> told = check_own_xattr(inode, xattr, value);
  require(told.ok() == is_value(xattr, value));
  require(told.ok() || told.error().code == EINVAL || told.error().code == ERANGE ||
          told.error().code == EPERM || told.error().code == EOPNOTSUPP);
  inode.mode = S_IFSOCK | 0755;
  require(!check_own_xattr(inode, xattr, value).ok());
  return told.ok();
}

}  // namespace

bool units(std::string_view input) {
  const auto [reader, raw, rest] = choose(input, 1 + kXattrs.size());
  if (reader > 0) return tell(kXattrs[reader - 1], rest);
  // A number before the input reaches the units without luck.
  return raw ? read_units("1.5" + std::string(rest)) : read_units(rest);
}

}  // namespace kvcachefs::fuzz

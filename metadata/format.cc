#include "metadata/format.h"

#include <fmt/format.h>

#include "backend/base/random.h"
#include "backend/base/wire.h"
#include "metadata/keys.h"

namespace kvcachefs {

Result<DatabaseState> check_format(Store& store, std::string* problem) {
  const auto explain = [problem](std::string text) {
    if (problem != nullptr) *problem = std::move(text);
  };
  const std::optional<std::string> value = TRY(store.get(Table::kMeta, keys::kFormat));
  if (value) {
    wire::Reader in(*value);
    const auto version = in.take<std::uint32_t>();
    if (!in.done() || version == 0) {
      explain(
          "metadata database: damaged (format version unreadable): restore the state directory "
          "from a backup, or start with an empty one");
      return fail(EBADMSG, "database: format key");
    }
    if (version > kDatabaseFormat) {
      explain(fmt::format(
          "metadata database: format {} was written by a newer kvcachefs (this one reads up to "
          "{}): use that version, or start with an empty state directory",
          version, kDatabaseFormat));
      return fail(EPROTONOSUPPORT, "database: format version");
    }
    return version < kDatabaseFormat ? DatabaseState::kOlder : DatabaseState::kCurrent;
  }
  // The format is written first of all, in one batch with the rest: without it, nothing may be
  // there.
  for (std::size_t table = 0; table < kTableCount; ++table) {
    bool empty = true;
    TRY(store.scan(static_cast<Table>(table), "", "", [&](std::string_view, std::string_view) {
      empty = false;
      return false;
    }));
    if (!empty) {
      explain(
          "metadata database: not one of kvcachefs (it has records but no format version): "
          "choose "
          "an empty state directory");
      return fail(EPROTONOSUPPORT, "database: no format key");
    }
  }
  return DatabaseState::kNew;
}

namespace {

void write_version(WriteBatch& batch) {
  std::string version;
  wire::put_le(version, kDatabaseFormat);
  batch.put(Table::kMeta, std::string(keys::kFormat), std::move(version));
}

}  // namespace

void write_upgrade(WriteBatch& batch) {
  write_version(batch);
  batch.put(Table::kMeta, keys::unread(kRootInode), {});
  // Nobody has kept account of it so far.
  batch.put(Table::kMeta, std::string(keys::kTold), {});
}

void write_format(WriteBatch& batch) {
  write_version(batch);
  const Uuid uuid = random_uuid();
  batch.put(Table::kMeta, std::string(keys::kUuid), std::string(uuid.begin(), uuid.end()));
}

}  // namespace kvcachefs

// Facts of the whole mount in the catalog: its devices and its pool, how the last run ended,
// what was counted.
#include <algorithm>

#include "backend/base/wire.h"
#include "metadata/catalog.h"
#include "metadata/find_record.h"
#include "metadata/format.h"
#include "metadata/keys.h"

namespace kvcachefs {
namespace {

constexpr std::uint8_t kRunVersion = 1;
// How a run has ended.
constexpr std::uint8_t kRunCrashed = 0;
constexpr std::uint8_t kRunClean = 1;
constexpr std::uint8_t kRunClosed = 2;  // clean, and RunMarker::closed_from follows
constexpr std::uint8_t kCutVersion = 1;
constexpr std::uint8_t kClockVersion = 1;

std::string encode_run(const RunMarker& marker) {
  std::string value;
  wire::put_le(value, kRunVersion);
  const std::uint8_t clean = marker.clean ? kRunClean : kRunCrashed;
  const bool is_closed = marker.clean && marker.closed_from;
  wire::put_le(value, is_closed ? kRunClosed : clean);
  if (is_closed) wire::put_le(value, *marker.closed_from);
  wire::put_le(value, static_cast<std::uint32_t>(marker.boot_id.size()));
  value += marker.boot_id;
  value += marker.mount_ids;
  return value;
}

Result<RunMarker> decode_run(std::string_view value) {
  wire::Reader in(value);
  if (in.take<std::uint8_t>() != kRunVersion) return fail(EBADMSG, "run marker: version");
  RunMarker marker;
  const auto end = in.take<std::uint8_t>();
  marker.clean = end == kRunClean || end == kRunClosed;
  if (end == kRunClosed) marker.closed_from = in.take<ObjectId>();
  marker.boot_id = in.take_bytes(in.take<std::uint32_t>());
  if (!in.ok() || end > kRunClosed) return fail(EBADMSG, "run marker: length");
  marker.mount_ids = in.take_rest();
  return marker;
}

std::string encode_clock(const ClockRecord& record) {
  std::string value;
  wire::put_le(value, kClockVersion);
  wire::put_le(value, static_cast<std::uint64_t>(record.now));
  wire::put_le(value, static_cast<std::uint64_t>(record.monotonic));
  wire::put_le(value, static_cast<std::uint32_t>(record.boot_id.size()));
  value += record.boot_id;
  for (const ClockSpan& span : record.spans) {
    wire::put_le(value, span.first);
    wire::put_le(value, static_cast<std::uint64_t>(span.ahead));
  }
  return value;
}

Result<ClockRecord> decode_clock(std::string_view value) {
  constexpr std::size_t kSpanBytes = 16;
  wire::Reader in(value);
  if (in.take<std::uint8_t>() != kClockVersion) return fail(EBADMSG, "clock: version");
  ClockRecord record;
  record.now = static_cast<std::int64_t>(in.take<std::uint64_t>());
  record.monotonic = static_cast<std::int64_t>(in.take<std::uint64_t>());
  record.boot_id = in.take_bytes(in.take<std::uint32_t>());
  if (!in.ok() || record.now <= 0 || in.left() % kSpanBytes != 0 ||
      in.left() / kSpanBytes > ClockRecord::kMostSpans)
    return fail(EBADMSG, "clock: length");
  while (in.left() > 0) {
    ClockSpan span;
    span.first = in.take<std::uint64_t>();
    span.ahead = static_cast<std::int64_t>(in.take<std::uint64_t>());
    record.spans.push_back(span);
  }
  return record;
}

std::string encode_cut(const MachineCut& cut) {
  std::string value;
  wire::put_le(value, kCutVersion);
  wire::put_le(value, cut.before);
  wire::put_le(value, static_cast<std::uint64_t>(cut.ended));
  return value;
}

Result<MachineCut> decode_cut(std::string_view value) {
  wire::Reader in(value);
  if (in.take<std::uint8_t>() != kCutVersion) return fail(EBADMSG, "machine's crash: version");
  MachineCut cut;
  cut.before = in.take<std::uint64_t>();
  cut.ended = static_cast<UnixNanos>(in.take<std::uint64_t>());
  if (!in.done()) return fail(EBADMSG, "machine's crash: length");
  return cut;
}

Result<DeviceUuid> decode_uuid(std::string_view value) {
  DeviceUuid uuid;
  if (value.size() != uuid.size()) return fail(EBADMSG, "uuid: length");
  std::copy(value.begin(), value.end(), uuid.begin());
  return uuid;
}

}  // namespace

Result<std::vector<DeviceUuid>> Catalog::devices() {
  std::vector<DeviceUuid> found;
  bool damaged = false;
  TRY(store_->scan(
      Table::kMeta, keys::kDevicePrefix, "", [&](std::string_view key, std::string_view value) {
        const Result<DeviceUuid> uuid = decode_uuid(value);
        damaged = !uuid || key != keys::device(static_cast<std::uint32_t>(found.size()));
        if (!damaged) found.push_back(*uuid);
        return !damaged;
      }));
  if (damaged) return fail(EBADMSG, "device table");
  return found;
}

Result<std::uint32_t> Catalog::add_device(const DeviceUuid& uuid) {
  const std::lock_guard lock(devices_mutex_);
  const std::vector<DeviceUuid> known = TRY(devices());
  const auto same = std::find(known.begin(), known.end(), uuid);
  const auto index = static_cast<std::uint32_t>(same - known.begin());
  if (same != known.end()) return index;
  WriteBatch batch;
  batch.put(Table::kMeta, keys::device(index), std::string(uuid.begin(), uuid.end()));
  TRY(store_->write(batch));
  TRY(store_->sync());
  return index;
}

// In the place of the last one; without it nothing can be freed. Synced.
Result<void> Catalog::replace_fact(std::string_view key, std::string value) {
  WriteBatch batch;
  batch.set_frees();
  batch.put(Table::kMeta, std::string(key), std::move(value));
  TRY(store_->write(batch));
  return store_->sync();
}

Result<RunMarker> Catalog::run_marker() {
  const std::optional<std::string> value = TRY(store_->get(Table::kMeta, keys::kRun));
  if (!value) return RunMarker{};
  return decode_run(*value);
}

Result<void> Catalog::set_run_marker(const RunMarker& marker) {
  return replace_fact(keys::kRun, encode_run(marker));
}

Result<std::optional<MachineCut>> Catalog::machine_cut() {
  return find(*store_, Table::kMeta, keys::kCut, decode_cut);
}

Result<void> Catalog::set_machine_cut(const MachineCut& cut) {
  return replace_fact(keys::kCut, encode_cut(cut));
}

Result<void> Catalog::forget_machine_cut() {
  WriteBatch batch;
  batch.set_frees();
  batch.remove(Table::kMeta, std::string(keys::kCut));
  return store_->write(batch);
}

Result<std::optional<ClockRecord>> Catalog::clock() {
  return find(*store_, Table::kMeta, keys::kClock, decode_clock);
}

// Not synced: after a crash of the machine it is older by some minutes.
Result<void> Catalog::set_clock(const ClockRecord& record) {
  WriteBatch batch;
  batch.set_frees();
  batch.put(Table::kMeta, std::string(keys::kClock), encode_clock(record));
  return store_->write(batch);
}

Result<DeviceUuid> Catalog::uuid() {
  const std::optional<std::string> value = TRY(store_->get(Table::kMeta, keys::kUuid));
  if (!value) return fail(EBADMSG, "database: no uuid");
  return decode_uuid(*value);
}

Result<std::optional<DeviceUuid>> Catalog::pool() {
  return find(*store_, Table::kMeta, keys::kPool, decode_uuid);
}

Result<void> Catalog::set_pool(const DeviceUuid& uuid) {
  WriteBatch batch;
  batch.put(Table::kMeta, std::string(keys::kPool), std::string(uuid.begin(), uuid.end()));
  TRY(store_->write(batch));
  return store_->sync();
}

Result<std::optional<std::uint64_t>> Catalog::sealed_bytes(std::uint32_t device) {
  const std::optional<std::string> value = TRY(store_->get(Table::kMeta, keys::sealed(device)));
  wire::Reader in(value ? std::string_view(*value) : std::string_view{});
  const auto bytes = in.take<std::uint64_t>();
  return in.done() ? std::optional(bytes) : std::nullopt;
}

Result<void> Catalog::set_sealed_bytes(std::uint32_t device, std::uint64_t bytes) {
  std::string value;
  wire::put_le(value, bytes);
  WriteBatch batch;
  batch.put(Table::kMeta, keys::sealed(device), std::move(value));
  return store_->write(batch);
}

Result<Catalog::BytesByUser> Catalog::metadata_bytes() {
  const std::optional<std::string> value =
      TRY(store_->get(Table::kMeta, std::string(keys::kMetadata)));
  wire::Reader in(value ? std::string_view(*value) : std::string_view{});
  BytesByUser users;
  while (in.left() > 0) {
    const auto user = in.take<std::uint32_t>();
    users.emplace_back(user, in.take<std::uint64_t>());
  }
  if (!in.ok()) return BytesByUser{};
  return users;
}

Result<void> Catalog::set_metadata_bytes(const BytesByUser& users) {
  std::string value;
  for (const auto& [user, bytes] : users) {
    wire::put_le(value, user);
    wire::put_le(value, bytes);
  }
  WriteBatch batch;
  batch.put(Table::kMeta, std::string(keys::kMetadata), std::move(value));
  return store_->write(batch);
}

}  // namespace kvcachefs

// The order of the passes, and what they share.
#include "fs/check/check.h"

#include <fmt/format.h>

#include "fs/life/run_identity.h"
#include "metadata/keys.h"

namespace kvcachefs {

std::string printable(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\\' || c == '"') {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

Result<CheckSummary> Check::run() {
  TRY(find_last_end());
  TRY(check_rows());
  TRY(check_root());
  TRY(check_names());
  TRY(check_tree());
  TRY(check_inodes());
  TRY(check_objects());
  TRY(check_xattrs());
  TRY(check_unsealed());
  TRY(check_orphans());
  TRY(check_devices());
  TRY(check_blocks());
  TRY(check_block_names());
  TRY(setup_.catalog.sync());
  return summary_;
}

Result<void> Check::find_last_end() {
  const RunMarker last = TRY(setup_.catalog.run_marker());
  crashed_ = !last.clean;
  closed_from_ = last.closed_from;
  const Result<std::optional<MachineCut>> cut = setup_.catalog.machine_cut();
  if (!cut.ok() && cut.error().code != EBADMSG) return cut.error();
  if (cut.ok() && *cut) cut_before_ = (*cut)->before;
  const bool is_cut = crashed_ && is_of_another_boot(last, TRY(marker_of_now(setup_.devices)));
  if (is_cut || !cut.ok()) cut_before_ = UINT64_MAX;
  return {};
}

void Check::line(const std::string& text) const {
  std::fprintf(setup_.out, "kvcachefs fsck: %s\n", text.c_str());
}

void Check::problem(const Remedy& remedy, const std::string& what) {
  ++summary_.problems;
  if (!setup_.repair) ++summary_.left;
  line(what + ": " + (setup_.repair ? remedy.done : remedy.offer));
}

void Check::unsolved(const std::string& what, std::string_view advice) {
  ++summary_.problems;
  ++summary_.left;
  line(fmt::format("{}: {}", what, advice));
}

Result<void> Check::each_row(
    Table table,
    const std::function<Result<void>(std::string_view key, std::string_view value)>& visit) {
  Result<void> outcome;
  TRY(setup_.store.scan(table, "", "", [&](std::string_view key, std::string_view value) {
    outcome = visit(key, value);
    return outcome.ok();
  }));
  return outcome;
}

Result<void> Check::erase(Table table, std::string_view key) {
  WriteBatch batch;
  batch.remove(table, std::string(key));
  return setup_.store.write(batch);
}

Result<bool> Check::has_row(Table table, std::string_view key) {
  return TRY(setup_.store.get(table, key)).has_value();
}

Result<bool> Check::refers_to(InodeNumber inode, ObjectId object) {
  const std::optional<InodeRecord> record = TRY(setup_.catalog.find_inode(inode));
  return record && (record->object == object || record->previous_object == object);
}

std::optional<std::uint32_t> Check::device_with(ObjectId object) {
  for (std::size_t i = 0; i < setup_.devices.size(); ++i) {
    if (setup_.devices[i]->status(object).ok()) return static_cast<std::uint32_t>(i);
  }
  return std::nullopt;
}

}  // namespace kvcachefs

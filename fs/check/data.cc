// Regular files: the object, its backing file, and the checksums of what is sealed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "fs/check/check.h"
#include "fs/life/checksum.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"

namespace kvcachefs {

Result<void> Check::check_data(InodeNumber number, InodeRecord& record) {
  TRY(check_previous(number, record));
  const auto lost = [&](const char* why) -> Result<void> {
    problem(kDropNames, fmt::format("file {} {}", number, why));
    return drop_names(number, record);
  };
  if (record.state == DataState::kRemote) return check_remote(number, record);
  if (record.object == kNoObject) return lost("has no object");
  std::optional<ObjectRecord> object = TRY(setup_.catalog.find_object(record.object));
  const bool right =
      object && object->inode == number && object->device < setup_.devices.size();
  if (!right) {
    if (object && object->inode != number && TRY(refers_to(object->inode, record.object)))
      return lost("has the object of another");
    const std::optional<std::uint32_t> device = device_with(record.object);
    if (!device) return lost("has no record of its object, and no backing file");
    problem(kMakeAnew, fmt::format("the record of object {} of file {} is {}", record.object,
                                   number, object ? "wrong" : "missing"));
    object = ObjectRecord{.inode = number, .device = *device, .chunk_crc32c = {}, .sealed = {}};
    Edit edit;
    edit.put_object(record.object, *object);
    TRY(commit(std::move(edit)));
    // Its checksums went with the old record.
    if (record.state == DataState::kSealed) TRY(forget_seal(number, record));
  }
  Tier& tier = *setup_.devices[object->device];
  const Result<struct stat> backing = tier.status(record.object);
  if (!backing.ok()) {
    const int code = backing.error().code;
    if (code != ENOENT && code != EBADMSG) return backing.error();
    // A power cut may take what was never synced; the next start drops it.
    if (crashed_ && is_unsealed(record.state)) return {};
    // It may bring back the name of what was evicted last.
    if (code == ENOENT && record.object < cut_before_) return {};
    return lost(code == ENOENT ? "has lost its backing file"
                               : "has something else in the place of its backing file");
  }
  if (record.state != DataState::kSealed) return {};
  return check_seal(number, record, tier, *object);
}

// Its bytes are on the pool alone, and are found again there by whoever looks its name up.
Result<void> Check::check_remote(InodeNumber number, InodeRecord& record) {
  const auto copy = setup_.catalog.find_pool_copy(number);
  const bool is_damaged = !copy.ok() && copy.error().code == EBADMSG;
  if (!copy.ok() && !is_damaged) return copy.error();
  if (!is_damaged && *copy && record.object == kNoObject) return {};
  problem(kDropNames, fmt::format("file {} is on the pool, and nothing says where", number));
  return drop_names(number, record);
}

Result<void> Check::check_previous(InodeNumber number, InodeRecord& record) {
  if (record.previous_object == kNoObject) return {};
  const std::optional<ObjectRecord> object =
      TRY(setup_.catalog.find_object(record.previous_object));
  const bool stands =
      object && object->inode == number && object->device < setup_.devices.size() &&
      record.previous_object != record.object && record.state == DataState::kUnpublished;
  if (stands) {
    const Result<struct stat> backing =
        setup_.devices[object->device]->status(record.previous_object);
    if (backing.ok()) return {};
    if (backing.error().code != ENOENT && backing.error().code != EBADMSG)
      return backing.error();
    if (crashed_ && record.previous_state != DataState::kSealed) return {};
  }
  problem(kRemove,
          fmt::format("the reference of file {} to its previous bytes leads nowhere", number));
  record.previous_object = kNoObject;
  record.previous_state = DataState::kNone;
  return {};
}

Result<void> Check::check_seal(InodeNumber number, InodeRecord& record, Tier& tier,
                               const ObjectRecord& object) {
  const auto damaged = [&](const char* why) -> Result<void> {
    problem(kQuarantine, fmt::format("file {} (object {}) {}", number, record.object, why));
    TRY(drop_names(number, record));
    return setup_.repair ? tier.quarantine(record.object) : Result<void>{};
  };
  const Result<UniqueFd> fd = tier.open(record.object, kOwnRead);
  struct stat now {};
  if (!fd.ok() || ::fstat(fd->get(), &now) != 0) {
    unsolved(fmt::format("file {} (object {}) cannot be opened", number, record.object),
             "look at the device");
    return {};
  }
  const DataStamp stamp = stamp_of(now);
  // Nobody has had it open or mapped since the last run.
  const bool is_closed = closed_from_ && record.object >= *closed_from_;
  if (stamp.size != record.stamp.size) {
    if (record.object < cut_before_ || (!is_closed && is_written_on(record, stamp))) return {};
    return damaged("is not as long as it was sealed");
  }
  const std::uint64_t chunks = stamp.size > kMostChecksummedBytes
                                   ? 0
                                   : (stamp.size + kChecksumChunk - 1) / kChecksumChunk;
  if (object.chunk_crc32c.size() != chunks ||
      (chunks > 0 && object.sealed.size != stamp.size)) {
    problem(kSealAnew, fmt::format("file {} is sealed without its checksums", number));
    return forget_seal(number, record);
  }
  if (chunks == 0) return {};
  const Result<std::vector<std::uint32_t>> sums = checksum_file(fd->get(), stamp.size);
  if (!sums.ok()) {
    unsolved(fmt::format("file {} (object {}) cannot be read", number, record.object),
             "look at the device");
    return {};
  }
  if (*sums == object.chunk_crc32c) return {};
  // Changed since its seal, by a user through a mapping that outlived its descriptor, or by
  // somebody below the mount: no one can tell. The mount takes it for the former, and seals it
  // anew.
  if (!is_same_data(stamp, record.stamp) && !is_closed) {
    if (setup_.out != nullptr) {
      fmt::print(setup_.out,
                 "note: file {} (object {}) was changed after its seal, through a mapping or "
                 "below the mount: its checksums no longer hold\n",
                 number, record.object);
    }
    return {};
  }
  return damaged("does not have the bytes that were sealed");
}

}  // namespace kvcachefs

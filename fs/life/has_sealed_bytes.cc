#include "fs/life/has_sealed_bytes.h"

#include <sys/stat.h>

#include "fs/life/checksum.h"

namespace kvcachefs {

Result<bool> has_sealed_bytes(Core& core, ObjectId id, const UniqueFd& fd) {
  const std::optional<ObjectRecord> object = TRY(core.catalog.find_object(id));
  if (!object || object->sealed.ctime == 0) return false;
  if (object->chunk_crc32c.empty() && object->sealed.size != 0) return false;
  struct stat now {};
  if (::fstat(fd.get(), &now) != 0) return fail_errno("status of a backing file");
  if (static_cast<std::uint64_t>(now.st_size) != object->sealed.size) return false;
  const std::vector<std::uint32_t> sums = TRY(checksum_file(fd.get(), object->sealed.size));
  return sums == object->chunk_crc32c;
}

}  // namespace kvcachefs

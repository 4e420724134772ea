#include "backend/pool/nfs_record.h"

#include <cstdint>

#include "backend/pool/libnfs_own.h"

struct rpc_context;

namespace kvcachefs {
namespace {

thread_local NfsRecord* being_read = nullptr;

}  // namespace

NfsRecord::Reading::Reading(NfsRecord& record) noexcept : before_(being_read) {
  being_read = &record;
}

NfsRecord::Reading::~Reading() { being_read = before_; }

bool NfsRecord::add(std::size_t size) noexcept {
  if (fragments_ >= kMostFragments || size > kMostBytes - bytes_) return false;
  ++fragments_;
  bytes_ += size;
  return true;
}

}  // namespace kvcachefs

using kvcachefs::being_read;
using kvcachefs::libnfs_own;

extern "C" {

int rpc_add_fragment(rpc_context* rpc, char* data, std::uint32_t size) {
  static const auto own = libnfs_own<decltype(&rpc_add_fragment)>("rpc_add_fragment");
  if (being_read != nullptr && !being_read->add(size)) return -1;
  return own(rpc, data, size);
}

void rpc_free_all_fragments(rpc_context* rpc) {
  static const auto own =
      libnfs_own<decltype(&rpc_free_all_fragments)>("rpc_free_all_fragments");
  if (being_read != nullptr) being_read->clear();
  own(rpc);
}

}  // extern "C"

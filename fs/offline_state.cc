#include "fs/offline_state.h"

#include <fmt/format.h>

#include <utility>

#include "fs/check/overlay_store.h"
#include "metadata/rocksdb_store.h"

namespace kvcachefs {

Result<std::unique_ptr<OfflineState>> OfflineState::open(const std::string& path,
                                                         std::string& problem) {
  StateDir state = TRY(StateDir::open(path, StateDir::IfMissing::kFail, problem));
  state.keep();  // whatever is in it
  std::unique_ptr<OfflineState> out{new OfflineState(std::move(state))};
  const std::string shown = out->state_.shown_database_path();
  std::unique_ptr<Store> store =
      TRY(RocksdbStore::open(out->state_.database_path(), RocksdbOptions{.shown_as = shown},
                             /*create=*/false, &problem));
  std::string why = fmt::format("does not read: see kvcachefs fsck --state {}", path);
  auto catalog = Catalog::create(std::make_unique<OverlayStore>(std::move(store)), &why);
  if (!catalog) {
    problem = fmt::format("{}: {}", shown, why);
    return catalog.error();
  }
  out->catalog_ = std::move(*catalog);
  return out;
}

}  // namespace kvcachefs

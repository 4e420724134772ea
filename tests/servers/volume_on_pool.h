// A mount on a pool, without a kernel: one of several that share it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backend/pool/pool_service.h"
#include "tests/fakes/gated_pool_session.h"
#include "tests/fakes/test_volume.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs::testing {

// A server with a mount on the pool; runs until kill() or stop_cleanly(), and again after run().
class Server {
 public:
  // `gate`: what its reads on the pool go through; null: nothing.
  Server(PoolPlace& place, std::uint8_t number, PoolOptions options = {},
         std::shared_ptr<ReadGate> gate = nullptr, BudgetOptions budget = {})
      : place_(place),
        number_(number),
        options_(options),
        gate_(std::move(gate)),
        budget_(std::move(budget)) {
    run();
  }
  ~Server() { stop(); }

  // As when it hears late of what another has put there.
  void forget_misses() { service_->misses().forget_all(); }

  void run() {
    Uuid node = kNode;
    node[0] = number_;
    service_ = std::make_unique<PoolService>(
        [this](Deadline) -> Result<std::unique_ptr<PoolSession>> {
          std::unique_ptr<PoolSession> session = TRY(place_.open());
          if (gate_ == nullptr) return session;
          return std::unique_ptr<PoolSession>(
              std::make_unique<GatedPoolSession>(std::move(session), gate_));
        },
        PoolService::Options{.node = node,
                             .lease = std::chrono::seconds{1},
                             .beat_every = std::chrono::milliseconds{100},
                             .dead_after = std::chrono::seconds{4},
                             .pool = pool_});
    if (volume_ == nullptr) {
      testing::TestVolumeOptions options;
      options.volume.pool = service_.get();
      options.volume.stage_bytes = 1 << 30;
      options.volume.pool_options = options_;
      options.volume.budget = budget_;
      volume_ = std::make_unique<TestVolume>(options);
    } else {
      volume_->set_pool(service_.get());
      volume_->run();
    }
    volume_->start();
  }
  // Ends the run in order; nothing may be used until run().
  void stop() {
    if (service_ == nullptr) return;
    volume_->stop_cleanly();
    pool_ = service_->report().pool;
    service_.reset();
  }
  [[nodiscard]] bool is_joined() const {
    return service_->report().joined && service_->server_now() != 0;
  }
  // From here to the end of the run the pool does not answer this one.
  void lose_pool() { service_->client().give_up(); }
  void tell(const PoolLogRecord& record) { service_->tell(record); }
  [[nodiscard]] PoolHealth health() const { return service_->client().health(); }
  [[nodiscard]] std::size_t nodes() const { return service_->report().living; }
  [[nodiscard]] PoolCounts counts() { return *(*volume_)->pool_counts(); }
  TestVolume& operator*() noexcept { return *volume_; }
  TestVolume* operator->() noexcept { return volume_.get(); }

  // What a read of the path gives, or the errno.
  std::string read(const std::string& path) {
    const Result<std::string> bytes = volume_->read_path(path);
    return bytes.ok() ? *bytes : "errno " + std::to_string(bytes.error().code);
  }
  [[nodiscard]] bool finds(const std::string& path) { return volume_->resolve(path).ok(); }

 private:
  PoolPlace& place_;
  const std::uint8_t number_;
  const PoolOptions options_;
  const std::shared_ptr<ReadGate> gate_;
  const BudgetOptions budget_;
  std::optional<Uuid> pool_;  // that the last run has joined
  std::unique_ptr<PoolService> service_;
  std::unique_ptr<TestVolume> volume_;
};

}  // namespace kvcachefs::testing

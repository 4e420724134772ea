// Whom `find`, `ls` and `tree` ask: the daemon of a mount, or the state directory itself when no
// daemon has it.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>

#include "backend/base/result.h"
#include "fs/control_request.h"
#include "fs/known/order_source.h"
#include "fs/offline_state.h"
#include "tools/find_mount.h"

namespace CLI {
class App;
}

namespace kvcachefs {

// As the command line names it: one of the two.
struct QueryPlace {
  std::string mountpoint;  // or any path in the mount
  std::string state;
};
// Adds MOUNTPOINT and --state.
void add_place(CLI::App& command, QueryPlace& place);
// Whether exactly one is given; else `problem` says so.
[[nodiscard]] bool is_one_place(const QueryPlace& place, std::string& problem);

class QuerySource {
 public:
  // Takes the state directory's lock when it is asked itself. `problem` is the line for the user.
  // Errors: those of find_mount() and of OfflineState::open().
  static Result<std::unique_ptr<QuerySource>> open(const QueryPlace& place,
                                                   std::string& problem);

  // An object, never an {"error":…}. `problem` as above. Errors: those of control_request(), and
  // EBADMSG (the answer is an error, or none).
  Result<nlohmann::json> ask(const ControlRequest& request, std::string& problem);

 private:
  QuerySource() = default;

  FoundMount mount_;  // of a daemon
  std::unique_ptr<OfflineState> offline_;
  std::unique_ptr<RecordedOrder> order_;  // of offline_
};

}  // namespace kvcachefs

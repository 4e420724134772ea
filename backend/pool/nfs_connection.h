// One TCP connection to one RPC program of an NFS server, through libnfs. One thread. Each call ends by its
// deadline; one that does not succeed for the connection's sake ends the connection, and what was under way on it.
//
// libnfs is asked for single requests (libnfs-raw.h) rather than for its file calls: those look up a path component
// by component, repeat what was lost by themselves, wait without end, and say EFAULT for everything.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backend/pool/nfs_record.h"
#include "backend/pool/pool_session.h"

struct rpc_context;

namespace kvcachefs {

struct NfsProgram {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint16_t port = 0;  // 0: the portmapper knows
};

// What the server is told of who asks (AUTH_SYS, RFC 5531 appendix A); default the process's own.
struct NfsUser {
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
};

class NfsConnection {
 public:
  // A request's answer: `result` is what libnfs decoded (a LOOKUP3res and the like), valid for the call only; null:
  // there is none, and there will be none.
  using Answer = std::function<void(const void* result)>;

  NfsConnection() = default;
  ~NfsConnection();
  NfsConnection(const NfsConnection&) = delete;
  NfsConnection& operator=(const NfsConnection&) = delete;

  // Names of hosts are resolved by the system's resolver, which may hold the thread beyond the deadline. Errors:
  // ETIMEDOUT, ENOTCONN (nobody answers there, or speaks that program).
  Result<void> connect(const std::string& host, const NfsProgram& program, const NfsUser& user,
                       Deadline deadline);
  [[nodiscard]] bool is_connected() const noexcept { return rpc_ != nullptr; }
  // Whether the other end has not closed it, or said something that nobody has asked for; asked while nothing is under
  // way. It waits for nobody: of a way that leads nowhere any more it knows nothing.
  [[nodiscard]] bool is_alive() const;

  // Puts a request on its way by `send`, which hands `answer_to` and the last argument to libnfs and returns what
  // that does. `answer` is called from within run(), or from close().
  template <class Send>
  Result<void> send(Send send, Answer answer) {
    if (rpc_ == nullptr) return fail(ENOTCONN, "pool: not connected");
    auto call = std::make_unique<Call>(Call{this, std::move(answer)});
    if (send(rpc_, call.get()) != 0) return fail(ENOMEM, "pool: a request cannot be sent");
    static_cast<void>(call.release());
    ++under_way_;
    return {};
  }
  // The callback of all requests.
  static void answer_to(rpc_context* rpc, int status, void* result, void* call);

  // Until all requests are answered. Errors: ETIMEDOUT, ENOTCONN; the connection is closed then.
  Result<void> run(Deadline deadline);
  // What is under way gets no answer.
  void close();
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_; }
  // Until `enough`, or all requests are answered. As run().
  Result<void> run_until(const std::function<bool()>& enough, Deadline deadline);

 private:
  struct Call {
    NfsConnection* connection;
    Answer answer;
  };

  Result<void> wait(Deadline deadline);

  rpc_context* rpc_ = nullptr;
  std::size_t under_way_ = 0;
  bool failed_ = false;
  NfsRecord record_;
};

}  // namespace kvcachefs

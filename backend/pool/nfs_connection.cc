#include "backend/pool/nfs_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <ctime>
#include <utility>

#include "backend/pool/libnfs.h"
#include "backend/pool/nfs_xdr.h"

namespace kvcachefs {
namespace {

// While nobody uses it, so that what is between does not forget it, and is_alive() hears of a server that is gone.
void keep_alive(int fd) noexcept {
  const auto set = [fd](int level, int option, int value) {
    static_cast<void>(::setsockopt(fd, level, option, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);   // seconds
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);  // seconds
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

NfsConnection::~NfsConnection() { close(); }

void NfsConnection::answer_to(rpc_context* /*rpc*/, int status, void* result, void* call) {
  const std::unique_ptr<Call> own(static_cast<Call*>(call));
  --own->connection->under_way_;
  const bool answered = status == RPC_STATUS_SUCCESS;
  if (!answered) own->connection->failed_ = true;
  own->answer(answered ? result : nullptr);
}

Result<void> NfsConnection::connect(const std::string& host, const NfsProgram& program,
                                    const NfsUser& user, Deadline deadline) {
  close();
  bound_xdr();
  rpc_ = rpc_init_context();
  if (rpc_ == nullptr) return fail(ENOMEM, "pool: no context for a connection");
  if (user.uid) rpc_set_uid(rpc_, static_cast<int>(*user.uid));
  if (user.gid) rpc_set_gid(rpc_, static_cast<int>(*user.gid));
  const auto program_number = static_cast<int>(program.program);
  const auto version = static_cast<int>(program.version);
  const Result<void> sent = send(
      [&](rpc_context* rpc, void* call) {
        return program.port != 0
                   ? rpc_connect_port_async(rpc, host.c_str(), program.port, program_number,
                                            version, answer_to, call)
                   : rpc_connect_program_async(rpc, host.c_str(), program_number, version,
                                               answer_to, call);
      },
      [](const void*) {});
  if (!sent.ok()) {
    close();
    return fail(ENOTCONN, "pool: the server's name or address is not known");
  }
  TRY(run(deadline));
  keep_alive(rpc_get_fd(rpc_));
  return {};
}

void NfsConnection::close() {
  if (rpc_ == nullptr) return;
  // Of a connection that is still being made, destroying it alone answers nobody, and loses what libnfs keeps for it.
  if (under_way_ > 0) static_cast<void>(rpc_service(rpc_, -1));
  // It answers what is under way, with an error.
  rpc_destroy_context(std::exchange(rpc_, nullptr));
  failed_ = false;
  record_.clear();
}

bool NfsConnection::is_alive() const {
  if (rpc_ == nullptr) return false;
  pollfd end{.fd = rpc_get_fd(rpc_), .events = POLLIN | POLLRDHUP, .revents = 0};
  return ::poll(&end, 1, 0) == 0;
}

Result<void> NfsConnection::wait(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= left.zero()) return fail(ETIMEDOUT, "pool: no answer by the deadline");
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{
      .tv_sec = seconds.count(),
      .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count()};
  pollfd wanted{.fd = rpc_get_fd(rpc_),
                .events = static_cast<short>(rpc_which_events(rpc_)),
                .revents = 0};
  const int ready = ::ppoll(&wanted, 1, &timeout, nullptr);
  if (ready < 0 && errno != EINTR) return fail(ENOTCONN, "pool: poll");
  if (ready <= 0) return {};
  const NfsRecord::Reading reading(record_);
  if (rpc_service(rpc_, wanted.revents) != 0 || failed_)
    return fail(ENOTCONN, "pool: the connection broke");
  return {};
}

Result<void> NfsConnection::run_until(const std::function<bool()>& enough, Deadline deadline) {
  while (under_way_ > 0 && !enough()) {
    if (const Result<void> waited = wait(deadline); !waited.ok()) {
      close();
      return waited;
    }
  }
  if (rpc_ == nullptr) return fail(ENOTCONN, "pool: not connected");
  return {};
}

Result<void> NfsConnection::run(Deadline deadline) {
  return run_until([] { return false; }, deadline);
}

}  // namespace kvcachefs

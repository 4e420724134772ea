// The control socket: one line of JSON in, one line of JSON out, then the connection ends.
//
//   {"command":"status"}   ->  {"version":…}           or  {"error":"…"}
//
// What a request may hold is in control_request.h, what is asked about KV cache in
// control_queries.h, about one path in control_steering.h: long listings go page by page, a request each.
//
// The socket is in the state directory (mode 0600); the peer must be root or the daemon's own
// user. One thread serves all; a peer that is slow, silent or too long is dropped, so nobody
// can hold it up.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"
#include "fs/control_request.h"

namespace kvcachefs {

// A request is a command and a few words, or a path.
inline constexpr std::size_t kControlRequestLimit = 16'384;
// A status with every device and operation is some 20 KiB.
inline constexpr std::size_t kControlAnswerLimit = 1 << 20;
inline constexpr std::size_t kControlClients = 8;
inline constexpr std::chrono::seconds kControlDeadline{2};

class ControlServer {
 public:
  // Answers with a JSON text without line breaks, or an error that becomes {"error": its text}.
  // Runs on the server's thread: what it takes, the next client waits.
  using Handler = std::function<Result<std::string>(const ControlRequest& request)>;

  // Binds `<state>/control.sock`, replacing what a dead daemon left. Clients may connect from now on; they are
  // answered after start(). The caller holds the state directory's lock. Errors: what socket(2) and bind(2) give.
  static Result<std::unique_ptr<ControlServer>> open(const std::string& state, Handler handler);
  // Starts the thread.
  void start();
  // Ends the thread and removes the socket. Clients in between get no answer.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  struct Client;
  ControlServer(std::string state, UniqueFd listener, UniqueFd stop, Handler handler);
  void serve() noexcept;
  [[nodiscard]] std::string answer(std::string_view line) const noexcept;

  std::string state_;
  UniqueFd listener_;
  UniqueFd stop_;  // eventfd: readable when the thread is to end
  Handler handler_;
  std::thread thread_;
};

// Asks the daemon of a state directory. The answer is the JSON line, without its end.
// Errors: ENOENT and ECONNREFUSED (no daemon), ETIMEDOUT (it does not answer), EACCES,
// EMSGSIZE.
Result<std::string> control_request(const std::string& state, const ControlRequest& request,
                                    std::chrono::milliseconds patience = std::chrono::seconds{
                                        5});
// The same for a command without more.
Result<std::string> control_request(const std::string& state, std::string_view command,
                                    std::chrono::milliseconds patience = std::chrono::seconds{
                                        5});

}  // namespace kvcachefs

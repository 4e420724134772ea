// Metrics by HTTP: GET /metrics on one address, for Prometheus. Off unless it is asked for (--metrics).
//
// Two threads answer, a third accepts; a client has two seconds from its connection to its last
// byte, so a slow one holds nobody up for longer. GET and HEAD alone are answered, and nothing
// is read beyond the head of a request. There is no encryption and no authentication: the
// address is the loopback's unless somebody says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "backend/base/result.h"
#include "fs/metrics_address.h"

namespace kvcachefs {

class MetricsServer {
 public:
  // The text to answer with (metrics_text.h). On two threads at once.
  using Handler = std::function<std::string()>;

  // Takes the port; clients wait for start(). Errors: what bind(2) gives, EADDRINUSE among them; EINVAL
  // (the host does not resolve).
  static Result<std::unique_ptr<MetricsServer>> open(const MetricsAddress& address,
                                                     Handler handler);
  void start();
  // Without a port: for answer() alone.
  static std::unique_ptr<MetricsServer> without_port(Handler handler);
  // Reads a request from a connected socket, as start()'s threads do, answers it, and closes
  // the socket. Waits for its client.
  void answer(int socket);
  // Ends the threads: two seconds at most.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

 private:
  class Http;
  explicit MetricsServer(std::unique_ptr<Http> http);
  static std::unique_ptr<Http> make_http(Handler handler);

  std::unique_ptr<Http> http_;
  std::thread thread_;
};

}  // namespace kvcachefs

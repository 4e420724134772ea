#include "fs/metrics_server.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "fs/metrics_text.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::size_t kWaiting = 8;  // connections; further ones stay in the kernel's queue
// Of a request: its line and its headers. There is no body that would be of use.
constexpr std::size_t kLongestRequest = 16 * 1024;
constexpr std::int64_t kClientNanos = 2 * kNanosPerSecond;

// A connection whose time is bounded as a whole, however little a client sends at a time, and
// so are the bytes that are read.
class TimedStream : public httplib::Stream {
 public:
  explicit TimedStream(int socket) : socket_(socket) {}

  [[nodiscard]] bool is_readable() const override { return is_ready(POLLIN); }
  [[nodiscard]] bool is_writable() const override { return is_ready(POLLOUT); }
  ssize_t read(char* out, std::size_t size) override {
    size = std::min(size, left_);
    if (size == 0 || !is_readable()) return -1;
    const ssize_t got = ::recv(socket_, out, size, 0);
    if (got > 0) left_ -= static_cast<std::size_t>(got);
    return got;
  }
  ssize_t write(const char* data, std::size_t size) override {
    return is_writable() ? ::send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  [[nodiscard]] socket_t socket() const override { return socket_; }

 private:
  [[nodiscard]] bool is_ready(short events) const {
    while (true) {
      const std::int64_t left = end_ - monotonic_now();
      if (left <= 0) return false;
      pollfd poll{.fd = socket_, .events = events, .revents = 0};
      const int ready = ::poll(&poll, 1, static_cast<int>(left / 1'000'000) + 1);
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  const int socket_;
  std::size_t left_ = kLongestRequest;
  const std::int64_t end_ = monotonic_now() + kClientNanos;
};

// httplib's own pool takes any number of connections.
class BoundedPool : public httplib::TaskQueue {
 public:
  BoundedPool() {
    for (std::size_t at = 0; at < kThreads; ++at) threads_.emplace_back([this] { work(); });
  }
  // The accepting thread waits here while all places are taken: for two seconds at most.
  void enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.size() < kWaiting || ending_; });
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !tasks_.empty() || ending_; });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      changed_.notify_all();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // under mutex_
  bool ending_ = false;                      // under mutex_
  std::vector<std::thread> threads_;
};

}  // namespace

class MetricsServer::Http : public httplib::Server {
 public:
  ~Http() override {
    // httplib closes it where it has listened.
    if (const socket_t socket = svr_sock_.exchange(INVALID_SOCKET); socket != INVALID_SOCKET)
      ::close(socket);
  }
  void serve() {
    listen_after_bind();
    ended_ = true;
  }
  // Of a serve() that was begun. At a stop no client is waited for.
  void end() {
    ending_ = true;
    // stop() passes by a server that does not listen yet.
    while (!is_running() && !ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop();
  }

  bool process_and_close_socket(socket_t socket) override {
    bool done = false;
    if (!ending_) {
      TimedStream stream(socket);
      bool closed = false;
      done = process_request(stream, /*close_connection=*/true, closed, nullptr);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return done;
  }

 private:
  std::atomic<bool> ending_{false};
  std::atomic<bool> ended_{false};
};

std::unique_ptr<MetricsServer::Http> MetricsServer::make_http(Handler handler) {
  auto http = std::make_unique<Http>();
  // httplib owns the pool, from listen_after_bind() on.
  http->new_task_queue = [] { return new BoundedPool(); };
  // Its default lets two daemons share a port.
  http->set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  http->set_payload_max_length(0);
  // Before httplib reads what may come behind the head.
  http->set_pre_routing_handler(
      [](const httplib::Request& request, httplib::Response& response) {
        if (request.method == "GET" || request.method == "HEAD")
          return httplib::Server::HandlerResponse::Unhandled;
        response.status = 405;
        response.set_header("Allow", "GET, HEAD");
        return httplib::Server::HandlerResponse::Handled;
      });
  http->Get("/metrics", [handler = std::move(handler)](const httplib::Request&,
                                                       httplib::Response& response) {
    response.set_content(handler(), kMetricsType);
  });
  return http;
}

std::unique_ptr<MetricsServer> MetricsServer::without_port(Handler handler) {
  return std::unique_ptr<MetricsServer>{new MetricsServer(make_http(std::move(handler)))};
}

void MetricsServer::answer(int socket) { http_->process_and_close_socket(socket); }

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(const MetricsAddress& address,
                                                           Handler handler) {
  auto http = make_http(std::move(handler));
  errno = 0;
  if (!http->bind_to_port(address.host, address.port))
    return fail(errno == 0 ? EINVAL : errno, "metrics: bind");
  return std::unique_ptr<MetricsServer>{new MetricsServer(std::move(http))};
}

MetricsServer::MetricsServer(std::unique_ptr<Http> http) : http_(std::move(http)) {}

void MetricsServer::start() {
  thread_ = std::thread([this] { http_->serve(); });
}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  http_->end();
  thread_.join();
}

}  // namespace kvcachefs

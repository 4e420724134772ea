#include "fs/control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/state_dir.h"

namespace kvcachefs {
namespace {

constexpr useconds_t kNoDescriptorPauseUs = 50'000;

// A socket address holds 107 bytes, a state directory's path may be longer: the address goes
// through a descriptor of the directory instead.
struct SocketAddress {
  UniqueFd directory;
  sockaddr_un address{};
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

Result<SocketAddress> address_in(const std::string& state) {
  SocketAddress out;
  out.directory.reset(::open(state.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!out.directory) return fail_errno("control: open the state directory");
  out.address.sun_family = AF_UNIX;
  const auto end = fmt::format_to_n(out.address.sun_path, sizeof out.address.sun_path - 1,
                                    "/proc/self/fd/{}/control.sock", out.directory.get());
  *end.out = '\0';
  return out;
}

bool peer_allowed(int fd) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

int poll_timeout(std::int64_t deadline) noexcept {
  const std::int64_t left = deadline - monotonic_now();
  if (left <= 0) return 0;
  return static_cast<int>(left / kNanosPerMilli) + 1;
}

std::string error_text(std::string_view text) {
  return nlohmann::json{{"error", std::string(text)}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

// A connection: first its request is collected, then its answer is sent.
struct ControlServer::Client {
  UniqueFd fd;
  std::int64_t deadline = 0;
  std::string request;
  std::string reply;
  std::size_t sent = 0;
  bool done = false;

  [[nodiscard]] bool replying() const noexcept { return !reply.empty(); }

  // Takes what has come; true when a line is complete.
  bool receive() {
    std::array<char, kControlRequestLimit> buffer;
    const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      done = true;
      return false;
    }
    request.append(buffer.data(), static_cast<std::size_t>(got));
    const std::size_t end = request.find('\n');
    if (end != std::string::npos && end <= kControlRequestLimit) {
      request.resize(end);
      return true;
    }
    if (request.size() > kControlRequestLimit) {
      reply = error_text("the request is too long") + "\n";
    }
    return false;
  }

  void send_some() {
    const ssize_t put =
        ::send(fd.get(), reply.data() + sent, reply.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (put <= 0) {
      done = true;
      return;
    }
    sent += static_cast<std::size_t>(put);
    done = sent == reply.size();
  }
};

Result<std::unique_ptr<ControlServer>> ControlServer::open(const std::string& state,
                                                           Handler handler) {
  const SocketAddress address = TRY(address_in(state));
  UniqueFd listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!listener) return fail_errno("control: socket");
  // The mode is given to the descriptor, so that the name never stands there with another one.
  if (::fchmod(listener.get(), 0600) != 0) return fail_errno("control: fchmod");
  if (::unlinkat(address.directory.get(), "control.sock", 0) != 0 && errno != ENOENT) {
    return fail_errno("control: remove the old socket");
  }
  if (::bind(listener.get(), address.get(), sizeof address.address) != 0) {
    return fail_errno("control: bind");
  }
  if (::fchmodat(address.directory.get(), "control.sock", 0600, 0) != 0) {
    return fail_errno("control: chmod");
  }
  if (::listen(listener.get(), static_cast<int>(kControlClients)) != 0) {
    return fail_errno("control: listen");
  }
  UniqueFd stop{::eventfd(0, EFD_CLOEXEC)};
  if (!stop) return fail_errno("control: eventfd");
  return std::unique_ptr<ControlServer>{
      new ControlServer(state, std::move(listener), std::move(stop), std::move(handler))};
}

void ControlServer::start() {
  thread_ = std::thread([this] { serve(); });
}

ControlServer::ControlServer(std::string state, UniqueFd listener, UniqueFd stop,
                             Handler handler)
    : state_(std::move(state)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      handler_(std::move(handler)) {}

ControlServer::~ControlServer() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  ::unlink(control_path_of(state_).c_str());
}

std::string ControlServer::answer(std::string_view line) const noexcept {
  std::string problem;
  const auto request = parse_control_request(line, problem);
  if (!request) return error_text(problem);
  auto reply = handler_(*request);
  if (!reply) return error_text(reply.error().what);
  return std::move(*reply);
}

void ControlServer::serve() noexcept {
  std::vector<Client> clients;
  while (true) {
    // The listener is left alone while all places are taken: the rest waits in its short queue.
    const bool full = clients.size() >= kControlClients;
    std::vector<pollfd> polls;
    polls.push_back({stop_.get(), POLLIN, 0});
    polls.push_back({full ? -1 : listener_.get(), POLLIN, 0});
    std::int64_t deadline = 0;
    for (const Client& client : clients) {
      polls.push_back(
          {client.fd.get(), static_cast<short>(client.replying() ? POLLOUT : POLLIN), 0});
      if (deadline == 0 || client.deadline < deadline) deadline = client.deadline;
    }
    const int ready =
        ::poll(polls.data(), polls.size(), clients.empty() ? -1 : poll_timeout(deadline));
    if (ready < 0 && errno != EINTR) {
      log_error("control event=ended reason=\"{}\"", std::strerror(errno));
      return;
    }
    if ((polls[0].revents & POLLIN) != 0) return;

    const std::int64_t now = monotonic_now();
    for (std::size_t i = 0; i < clients.size(); ++i) {
      Client& client = clients[i];
      if (ready > 0 && polls[i + 2].revents != 0) {
        if (client.replying()) {
          client.send_some();
        } else if (client.receive()) {
          client.reply = answer(client.request) + "\n";
        }
      }
      if (now >= client.deadline) client.done = true;
    }
    std::erase_if(clients, [](const Client& client) { return client.done; });

    if (ready > 0 && (polls[1].revents & POLLIN) != 0) {
      UniqueFd fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      // No descriptor is free: it stays in the queue.
      if (!fd && errno != EAGAIN && errno != ECONNABORTED) ::usleep(kNoDescriptorPauseUs);
      if (fd && peer_allowed(fd.get())) {
        const auto limit = std::chrono::nanoseconds{kControlDeadline}.count();
        clients.push_back({.fd = std::move(fd),
                           .deadline = monotonic_now() + limit,
                           .request = {},
                           .reply = {}});
      }
    }
  }
}

Result<std::string> control_request(const std::string& state, std::string_view command,
                                    std::chrono::milliseconds patience) {
  ControlRequest request;
  request.command = command;
  return control_request(state, request, patience);
}

Result<std::string> control_request(const std::string& state, const ControlRequest& request,
                                    std::chrono::milliseconds patience) {
  const std::int64_t deadline = monotonic_now() + std::chrono::nanoseconds{patience}.count();
  const SocketAddress address = TRY(address_in(state));
  const UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!fd) return fail_errno("control: socket");
  // A full queue makes connect(2) wait; the send timeout bounds that.
  const timespec t = to_timespec(std::chrono::nanoseconds{patience}.count());
  const timeval limit{.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), address.get(), sizeof address.address) != 0) {
    if (errno == EAGAIN) return fail(ETIMEDOUT, "control: connect");
    return fail_errno("control: connect");
  }
  const std::string line = encode(request) + "\n";
  if (line.size() > kControlRequestLimit) return fail(EMSGSIZE, "control: request");
  if (::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return fail_errno("control: send");
  }
  std::string reply;
  std::array<char, 16384> buffer;
  while (true) {
    pollfd poll_one{fd.get(), POLLIN, 0};
    const int ready = ::poll(&poll_one, 1, poll_timeout(deadline));
    if (ready < 0 && errno != EINTR) return fail_errno("control: poll");
    if (ready == 0) return fail(ETIMEDOUT, "control: no answer");
    if (ready < 0) continue;
    const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return fail_errno("control: receive");
    if (got == 0) return fail(ECONNRESET, "control: the daemon closed the connection");
    reply.append(buffer.data(), static_cast<std::size_t>(got));
    if (reply.size() > kControlAnswerLimit) return fail(EMSGSIZE, "control: answer");
    if (reply.back() == '\n') {
      reply.pop_back();
      return reply;
    }
  }
}

}  // namespace kvcachefs

// Bytes of a client to the metrics port: a request is answered with what it asks for or with
// an error, and nothing is read beyond the longest that one may be.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "backend/base/unique_fd.h"
#include "fs/metrics_server.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

constexpr std::string_view kText = "kvcachefs_up 1\n";
// So much a socket holds without a reader.
constexpr std::size_t kMost = 64 * 1024;

MetricsServer& server() {
  static const std::unique_ptr<MetricsServer> only =
      MetricsServer::without_port([] { return std::string(kText); });
  return *only;
}

std::string read_all(int fd) {
  std::string all;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = ::read(fd, buffer.data(), buffer.size())) > 0)
    all.append(buffer.data(), static_cast<std::size_t>(got));
  return all;
}

}  // namespace

bool metrics(std::string_view input) {
  input = input.substr(0, kMost);
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const UniqueFd client(ends[0]);
  require(::send(client.get(), input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
          static_cast<ssize_t>(input.size()));
  require(::shutdown(client.get(), SHUT_WR) == 0);
  server().answer(ends[1]);
  const std::string answer = read_all(client.get());
  if (answer.empty()) return false;
  require(answer.starts_with("HTTP/1.1 "));
  require(answer.size() < 4096 + 2 * input.size());
  const bool is_done = answer.starts_with("HTTP/1.1 200 ");
  if (!is_done) return false;
  // A client that gets it has asked for it, by one of two methods.
  const std::string_view line =
      input.substr(std::min(input.size(), input.find_first_not_of(' ')));
  const bool is_get = line.starts_with("GET ");
  require(is_get || line.starts_with("HEAD "));
  // Some clients take it compressed.
  if (answer.find("\r\nContent-Encoding: ") != std::string::npos) return true;
  require(answer.ends_with("\r\n\r\n" + std::string(is_get ? kText : "")));
  return true;
}

}  // namespace kvcachefs::fuzz

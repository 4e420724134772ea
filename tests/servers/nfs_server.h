// A real NFS server for one directory, for a test (nfs_server.sh).
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "tests/fakes/tests_dir.h"

namespace kvcachefs::testing {

class NfsServer {
 public:
  // `work` keeps its configuration and log. Throws when it does not come up.
  NfsServer(std::string directory, std::string work)
      : directory_(std::move(directory)), work_(std::move(work)), port_(two_free_ports()) {
    up();
  }
  ~NfsServer() {
    signal_it(SIGCONT);
    static_cast<void>(run("down " + work_));
    std::error_code ignored;
    std::filesystem::remove_all(work_, ignored);
  }
  NfsServer(const NfsServer&) = delete;
  NfsServer& operator=(const NfsServer&) = delete;

  void up() {
    if (run(fmt::format("up {} {} {}", directory_, work_, port_)) != 0)
      throw std::runtime_error("the NFS server did not come up: see " + work_ + "/log");
  }
  void down() { static_cast<void>(run("down " + work_)); }
  // SIGKILL, SIGSTOP, SIGCONT. Once SIGSTOP returns, none of its threads answers any more.
  void signal_it(int signal) const {
    pid_t pid = 0;
    std::ifstream(work_ + "/pid") >> pid;
    if (pid <= 0 || ::kill(pid, signal) != 0 || signal != SIGSTOP) return;
    while (!all_stopped(pid)) std::this_thread::yield();
  }
  [[nodiscard]] std::string uri(const std::string& below = {}) const {
    return fmt::format("nfs://127.0.0.1/export{}?nfsport={}&mountport={}", below, port_,
                       port_ + 1);
  }

 private:
  // proc(5): the state follows the name, which ends with the last parenthesis.
  static bool all_stopped(pid_t pid) {
    std::error_code gone;
    for (const auto& task :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
      std::ifstream stat(task.path() / "stat");
      std::string line;
      std::getline(stat, line);
      const std::size_t name_end = line.rfind(')');
      if (name_end != std::string::npos && line.compare(name_end, 3, ") T") != 0) return false;
    }
    return true;
  }
  static int run(const std::string& arguments) {
    const std::string command =
        std::string(tests_dir()) + "/servers/nfs_server.sh " + arguments + " </dev/null";
    return std::system(
        command.c_str());  // NOLINT(concurrency-mt-unsafe): one thread starts servers
  }
  // Neighbours that nobody has at this moment.
  static std::uint16_t two_free_ports() {
    for (int i = 0; i < 100; ++i) {
      const std::uint16_t port = bound(0);
      if (port != 0 && port < 65535 && bound(static_cast<std::uint16_t>(port + 1)) != 0)
        return port;
    }
    throw std::runtime_error("no free ports");
  }
  static std::uint16_t bound(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    const bool is_free = ::bind(fd, plain, size) == 0 && ::getsockname(fd, plain, &size) == 0;
    ::close(fd);
    return is_free ? ntohs(address.sin_port) : std::uint16_t{0};
  }

  const std::string directory_;
  const std::string work_;
  const std::uint16_t port_;
};

}  // namespace kvcachefs::testing

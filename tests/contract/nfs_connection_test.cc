// What the other end of a connection to an NFS server may do to this one: bounded time, bounded
// memory.
#include "backend/pool/nfs_connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include "backend/base/unique_fd.h"
#include "backend/pool/libnfs.h"
#include "backend/pool/nfs_record.h"
#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

class Listener {
 public:
  explicit Listener(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(0, ::bind(fd_.get(), plain(), size_));
    EXPECT_EQ(0, ::getsockname(fd_.get(), plain(), &size_));
    EXPECT_EQ(0, ::listen(fd_.get(), backlog));
  }

  Result<void> connect(NfsConnection& connection, std::chrono::milliseconds within) const {
    return connection.connect(
        "127.0.0.1",
        {.program = NFS_PROGRAM, .version = NFS_V3, .port = ntohs(address_.sin_port)}, {},
        std::chrono::steady_clock::now() + within);
  }
  // One that nobody accepts.
  UniqueFd knock() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(::connect(fd.get(), plain(), size_));
    return fd;
  }
  [[nodiscard]] UniqueFd accept() const {
    return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  sockaddr* plain() { return reinterpret_cast<sockaddr*>(&address_); }

  UniqueFd fd_;
  sockaddr_in address_{};
  socklen_t size_ = sizeof address_;
};

// Leaks are the sanitizer's to find.
TEST(NfsConnectionTest, AServerThatDoesNotEvenAcceptCostsTheDeadline) {
  Listener server(0);
  // With its queue full, it does not answer any more.
  std::vector<UniqueFd> others;
  for (int i = 0; i < 4; ++i) others.push_back(server.knock());
  NfsConnection connection;
  for (int i = 0; i < 3; ++i) {
    EXPECT_ERROR(ETIMEDOUT, server.connect(connection, std::chrono::milliseconds{100}));
    EXPECT_EQ(0u, connection.under_way());
    EXPECT_FALSE(connection.is_alive());
  }
}

// A fragment of a record, not its last; RFC 5531, section 11.
std::string fragment(std::uint32_t size) {
  std::string bytes(sizeof size, '\0');
  for (std::size_t i = 0; i < sizeof size; ++i)
    bytes[i] = static_cast<char>(size >> (8 * (sizeof size - 1 - i)) & 0xff);
  return bytes + std::string(size, '\0');
}

TEST(NfsConnectionTest, ARecordWithoutEndEndsTheConnection) {
  // What the kernel may hold at both ends beside what is read.
  constexpr std::size_t kBuffers = std::size_t{24} << 20;
  for (const std::uint32_t size : {1u << 20, 100'000u, 1000u, 1u}) {
    Listener server(1);
    std::size_t taken = 0;
    std::thread sender([&] {
      const UniqueFd client = server.accept();
      const std::string part = fragment(size);
      while (taken < 4 * kBuffers) {
        const ssize_t sent = ::send(client.get(), part.data(), part.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        taken += static_cast<std::size_t>(sent);
      }
    });
    NfsConnection connection;
    EXPECT_ERROR(ENOTCONN, server.connect(connection, std::chrono::seconds{60}));
    sender.join();
    EXPECT_LT(taken, NfsRecord::kMostBytes + kBuffers) << size;
    EXPECT_FALSE(connection.is_connected());
  }
}

TEST(NfsConnectionTest, SomeFragmentsAreARecord) {
  NfsRecord record;
  for (int rounds = 0; rounds < 3; ++rounds) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(record.add(256 << 10));
    EXPECT_TRUE(record.add(4096));
    EXPECT_FALSE(record.add(1));
    record.clear();
    for (std::size_t i = 0; i < NfsRecord::kMostFragments; ++i) EXPECT_TRUE(record.add(1));
    EXPECT_FALSE(record.add(1));
    record.clear();
  }
}

}  // namespace
}  // namespace kvcachefs

// The contract of PoolSession, for every implementation: a directory of ext4, and a real NFS server.
#include "backend/pool/pool_session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/base/unique_fd.h"
#include "backend/pool/libnfs.h"
#include "backend/pool/nfs_session.h"
#include "backend/pool/pool_client.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/pulse.h"
#include "tests/fakes/seed.h"
#include "tests/fakes/temp_dir.h"
#include "tests/servers/nfs_server.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using Bytes = std::vector<std::byte>;

using testing::soon;

class PoolSessionContract : public testing::PoolTest {
 protected:
  static Bytes bytes_of(std::size_t size) {
    std::mt19937_64 chance(testing::test_seed());
    Bytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(chance());
    return bytes;
  }
  PoolFilePtr make(std::string_view path, const Bytes& bytes) {
    const Result<PoolFilePtr> file = session_->create(path, 0640, soon());
    EXPECT_OK(file);
    if (!file.ok()) return nullptr;
    EXPECT_OK(session_->write(**file, 0, bytes, PoolWrite::kAtCommit, soon()));
    EXPECT_OK(session_->commit(**file, soon()));
    return *file;
  }
  Bytes get(PoolFile& file, std::uint64_t offset, std::size_t size) {
    Bytes bytes(size);
    const Result<std::size_t> got = session_->read(file, offset, bytes, soon());
    EXPECT_OK(got);
    bytes.resize(got.ok() ? *got : 0);
    return bytes;
  }
  Bytes get(std::string_view path) {
    const Result<PoolFilePtr> file = session_->open(path, soon());
    EXPECT_OK(file);
    return file.ok() ? get(**file, 0, (*file)->status().size + 1) : Bytes{};
  }
  std::multiset<std::string> names(std::string_view path) {
    std::multiset<std::string> names;
    EXPECT_OK(session_->list(
        path,
        [&](const PoolEntry& entry) {
          names.emplace(entry.name);
          return true;
        },
        soon()));
    return names;
  }
};

TEST_P(PoolSessionContract, KeepsWhatWasWritten) {
  // Nothing, less than a request, exactly some, and more than are under way at once.
  for (const std::size_t size : {0UL, 1UL, 4097UL, 1UL << 20, (21UL << 20) + 5}) {
    const Bytes bytes = bytes_of(size);
    const std::string name = "file-" + std::to_string(size);
    ASSERT_NE(nullptr, make(name, bytes));
    EXPECT_EQ(bytes, get(name));
    const Result<PoolStatus> status = session_->status(name, soon());
    ASSERT_OK(status);
    EXPECT_EQ(PoolKind::kFile, status->kind);
    EXPECT_EQ(size, status->size);
    EXPECT_EQ(0640u, status->mode);
    EXPECT_EQ(1u, status->nlink);
    struct stat below {};
    ASSERT_EQ(0, ::stat((place_->root() + "/" + name).c_str(), &below));
    EXPECT_EQ(below.st_ino, status->fileid);
    EXPECT_EQ(static_cast<off_t>(size), below.st_size);
  }
}

TEST_P(PoolSessionContract, ReadsAnyPart) {
  const Bytes bytes = bytes_of((3u << 20) + 100);
  const PoolFilePtr file = make("f", bytes);
  ASSERT_NE(nullptr, file);
  std::mt19937_64 chance(testing::test_seed());
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t from = chance() % (bytes.size() + 10'000);
    const std::size_t size = chance() % (2u << 20);
    const std::size_t end = std::min<std::size_t>(bytes.size(), from + size);
    const Bytes part = from < end ? Bytes(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                                          bytes.begin() + static_cast<std::ptrdiff_t>(end))
                                  : Bytes{};
    EXPECT_EQ(part, get(*file, from, size)) << from << " " << size;
  }
}

TEST_P(PoolSessionContract, WritesAnywhereAndAtOnce) {
  const PoolFilePtr file = make("f", {});
  ASSERT_NE(nullptr, file);
  const Bytes bytes = bytes_of(10'000);
  EXPECT_OK(session_->write(*file, 5000, bytes, PoolWrite::kNow, soon()));
  Bytes expected(5000);
  expected.insert(expected.end(), bytes.begin(), bytes.end());
  EXPECT_EQ(expected, get("f"));
}

TEST_P(PoolSessionContract, MakesAFileOnce) {
  ASSERT_NE(nullptr, make("f", bytes_of(10)));
  EXPECT_ERROR(EEXIST, session_->create("f", 0600, soon()));
  EXPECT_EQ(10u, get("f").size());
  EXPECT_ERROR(ENOENT, session_->create("no/f", 0600, soon()));
}

TEST_P(PoolSessionContract, PublishesByALinkThatReplacesNothing) {
  ASSERT_OK(session_->make_directory("tmp", 0700, soon()));
  const Bytes bytes = bytes_of(100);
  const PoolFilePtr file = make("tmp/1", bytes);
  ASSERT_NE(nullptr, file);
  EXPECT_OK(session_->link(*file, "block", soon()));
  EXPECT_EQ(bytes, get("block"));
  const Result<PoolStatus> status = session_->status("block", soon());
  ASSERT_OK(status);
  EXPECT_EQ(file->status().fileid, status->fileid);
  EXPECT_EQ(2u, status->nlink);
  EXPECT_ERROR(EEXIST, session_->link(*file, "block", soon()));
  EXPECT_ERROR(ENOENT, session_->link(*file, "no/block", soon()));
  EXPECT_OK(session_->remove("tmp/1", soon()));
  EXPECT_EQ(bytes, get("block"));
}

TEST_P(PoolSessionContract, RenamingKeepsOpenFiles) {
  const Bytes bytes = bytes_of(1000);
  const PoolFilePtr file = make("f", bytes);
  ASSERT_NE(nullptr, file);
  ASSERT_OK(session_->make_directory("trash", 0700, soon()));
  EXPECT_OK(session_->rename("f", "trash/f", soon()));
  EXPECT_ERROR(ENOENT, session_->status("f", soon()));
  EXPECT_EQ(bytes, get(*file, 0, 2000));
  EXPECT_ERROR(ENOENT, session_->rename("f", "g", soon()));
  const Bytes others = bytes_of(7);
  ASSERT_NE(nullptr, make("g", others));
  EXPECT_OK(session_->rename("g", "trash/f", soon()));
  EXPECT_EQ(others, get("trash/f"));
}

TEST_P(PoolSessionContract, AFileServesAnotherSessionAndThread) {
  const Bytes bytes = bytes_of(5u << 20);
  const PoolFilePtr file = make("f", bytes);
  ASSERT_NE(nullptr, file);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Result<std::unique_ptr<PoolSession>> other = place_->open();
      ASSERT_OK(other);
      Bytes read(bytes.size());
      const Result<std::size_t> got = (*other)->read(*file, 0, read, soon());
      ASSERT_OK(got);
      EXPECT_EQ(bytes, read);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(PoolSessionContract, ListsAll) {
  ASSERT_OK(session_->make_directory("d", 0700, soon()));
  std::multiset<std::string> made;
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "a-rather-long-name-of-a-block-" + std::to_string(i) + ".bin";
    std::ofstream(place_->root() + "/d/" + name) << i;
    made.insert(name);
  }
  EXPECT_EQ(made, names("d"));
  EXPECT_EQ(std::multiset<std::string>{"d"}, names(""));
  int visited = 0;
  EXPECT_OK(session_->list(
      "d", [&](const PoolEntry&) { return ++visited < 10; }, soon()));
  EXPECT_EQ(10, visited);
  EXPECT_ERROR(ENOENT, session_->list(
                           "no", [](const PoolEntry&) { return true; }, soon()));
}

TEST_P(PoolSessionContract, ListsWhatNamesStandFor) {
  ASSERT_OK(session_->make_directory("d", 0700, soon()));
  ASSERT_OK(session_->make_directory("d/below", 0700, soon()));
  ASSERT_EQ(0, ::symlink("nowhere", (place_->root() + "/d/link").c_str()));
  for (int i = 0; i < 1500; ++i)
    std::ofstream(place_->root() + "/d/a-rather-long-name-of-a-block-" + std::to_string(i))
        << std::string(static_cast<std::size_t>(i % 7), 'x');
  std::map<std::string, PoolStatus> found;
  ASSERT_OK(session_->list_statuses(
      "d",
      [&](const PoolEntry& entry, const PoolStatus& status) {
        EXPECT_EQ(entry.fileid, status.fileid);
        return found.emplace(std::string(entry.name), status).second;
      },
      soon()));
  ASSERT_EQ(1502u, found.size());
  EXPECT_EQ(PoolKind::kDirectory, found["below"].kind);
  EXPECT_EQ(PoolKind::kOther, found["link"].kind);
  for (int i = 0; i < 1500; i += 97) {
    const std::string name = "a-rather-long-name-of-a-block-" + std::to_string(i);
    const Result<PoolStatus> status = session_->status("d/" + name, soon());
    ASSERT_OK(status);
    EXPECT_EQ(PoolKind::kFile, found[name].kind);
    EXPECT_EQ(status->fileid, found[name].fileid);
    EXPECT_EQ(static_cast<std::uint64_t>(i % 7), found[name].size);
    EXPECT_EQ(status->mtime, found[name].mtime);
  }
  int visited = 0;
  EXPECT_OK(session_->list_statuses(
      "d", [&](const PoolEntry&, const PoolStatus&) { return ++visited < 10; }, soon()));
  EXPECT_EQ(10, visited);
  EXPECT_ERROR(ENOENT,
               session_->list_statuses(
                   "no", [](const PoolEntry&, const PoolStatus&) { return true; }, soon()));
}

TEST_P(PoolSessionContract, ATouchMovesTheAtimeAlone) {
  const PoolFilePtr file = make("f", {});
  ASSERT_NE(nullptr, file);
  const timespec old[2] = {{.tv_sec = 1'000'000'000, .tv_nsec = 5},
                           {.tv_sec = 1'000'000'001, .tv_nsec = 7}};
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, (place_->root() + "/f").c_str(), old, 0));
  ASSERT_OK(session_->touch(*file, soon()));
  const Result<PoolStatus> status = session_->status("f", soon());
  ASSERT_OK(status);
  EXPECT_GT(status->atime, 1'700'000'000 * kNanosPerSecond);
  EXPECT_EQ(1'000'000'001 * kNanosPerSecond + 7, status->mtime);
}

TEST_P(PoolSessionContract, MakesAndRemovesDirectories) {
  EXPECT_OK(session_->make_directory("d", 0750, soon()));
  EXPECT_ERROR(EEXIST, session_->make_directory("d", 0750, soon()));
  EXPECT_ERROR(ENOENT, session_->make_directory("no/d", 0750, soon()));
  const Result<PoolStatus> status = session_->status("d", soon());
  ASSERT_OK(status);
  EXPECT_EQ(PoolKind::kDirectory, status->kind);
  EXPECT_EQ(0750u, status->mode);
  ASSERT_NE(nullptr, make("d/f", {}));
  EXPECT_ERROR(ENOTEMPTY, session_->remove_directory("d", soon()));
  EXPECT_ERROR(ENOTDIR, session_->status("d/f/g", soon()));
  EXPECT_OK(session_->remove("d/f", soon()));
  EXPECT_ERROR(ENOENT, session_->remove("d/f", soon()));
  EXPECT_OK(session_->remove_directory("d", soon()));
  // Its handle was remembered, and another directory stands at its path now.
  EXPECT_OK(session_->make_directory("d", 0750, soon()));
  EXPECT_NE(nullptr, make("d/f", {}));
}

TEST_P(PoolSessionContract, WhatAnotherRemovesAndMakesAnewIsFound) {
  ASSERT_OK(session_->make_directory("d", 0700, soon()));
  ASSERT_NE(nullptr, make("d/old", {}));
  const Result<std::unique_ptr<PoolSession>> other = place_->open();
  ASSERT_OK(other);
  ASSERT_OK((*other)->remove("d/old", soon()));
  ASSERT_OK((*other)->remove_directory("d", soon()));
  ASSERT_OK((*other)->make_directory("d", 0700, soon()));
  ASSERT_OK((*other)->create("d/new", 0600, soon()));
  EXPECT_OK(session_->status("d/new", soon()));
  EXPECT_ERROR(ENOENT, session_->status("d/old", soon()));
}

TEST_P(PoolSessionContract, FollowsNoSymlinkAndTakesNoBadPath) {
  std::filesystem::create_symlink("/etc/passwd", place_->root() + "/link");
  std::filesystem::create_directory_symlink("/etc", place_->root() + "/etc");
  EXPECT_FALSE(session_->open("link", soon()).ok());
  EXPECT_FALSE(session_->open("etc/passwd", soon()).ok());
  EXPECT_FALSE(session_->create("etc/kvcachefs-test", 0600, soon()).ok());
  for (const std::string& path :
       {std::string("/"), std::string("a//b"), std::string("."), std::string("../etc/passwd"),
        std::string("a/.."), std::string("a/"), std::string("a\0b", 3),
        std::string(256, 'a')}) {
    EXPECT_ERROR(EINVAL, session_->status(path, soon())) << path;
    EXPECT_ERROR(EINVAL, session_->create(path, 0600, soon())) << path;
    EXPECT_ERROR(EINVAL, session_->remove(path, soon())) << path;
  }
  EXPECT_ERROR(EINVAL, session_->remove("", soon()));
  EXPECT_ERROR(EISDIR, session_->open("", soon()));
}

TEST_P(PoolSessionContract, SaysHowMuchRoomThereIs) {
  const Result<PoolSpace> space = session_->space(soon());
  ASSERT_OK(space);
  EXPECT_GT(space->total, space->available);
  EXPECT_GT(space->available, 0u);
}

TEST_P(PoolSessionContract, ARemovedFileIsStaleOrReadable) {
  const Bytes bytes = bytes_of(100);
  const PoolFilePtr file = make("f", bytes);
  ASSERT_NE(nullptr, file);
  EXPECT_OK(session_->remove("f", soon()));
  Bytes read(100);
  const Result<std::size_t> got = session_->read(*file, 0, read, soon());
  if (got.ok()) {
    EXPECT_EQ(bytes, read);
  } else {
    EXPECT_EQ(ESTALE, got.error().code);
  }
}

TEST_P(PoolSessionContract, ListingsFindWhatWasMadeAnew) {
  for (const std::string& directory : {std::string(".kvcachefs"), std::string("d")}) {
    ASSERT_OK(session_->make_directory(directory, 0700, soon()));
    ASSERT_OK(session_->make_directory(directory + "/e", 0700, soon()));
    ASSERT_NE(nullptr, make(directory + "/e/old", {}));
    EXPECT_EQ(std::multiset<std::string>{"old"}, names(directory + "/e"));
    // By somebody else, below the server and its handles.
    std::filesystem::remove_all(place_->root() + "/" + directory);
    std::filesystem::create_directories(place_->root() + "/" + directory + "/e");
    std::ofstream(place_->root() + "/" + directory + "/e/new") << "x";
    EXPECT_EQ(std::multiset<std::string>{"new"}, names(directory + "/e"));
    std::filesystem::remove_all(place_->root() + "/" + directory);
    std::filesystem::create_directories(place_->root() + "/" + directory + "/e");
    std::multiset<std::string> found;
    EXPECT_OK(session_->list_statuses(
        directory + "/e",
        [&](const PoolEntry& entry, const PoolStatus&) {
          found.emplace(entry.name);
          return true;
        },
        soon()));
    EXPECT_EQ(std::multiset<std::string>{}, found);
    EXPECT_NE(nullptr, make(directory + "/e/more", {}));
    std::filesystem::remove_all(place_->root() + "/" + directory);
    std::filesystem::create_directories(place_->root() + "/" + directory + "/e");
    EXPECT_OK(session_->make_directory(directory + "/e/f", 0700, soon()));
  }
}

TEST_P(PoolSessionContract, OneWhoseDirectoryWasRemovedIsDead) {
  ASSERT_NE(nullptr, make("f", {}));
  EXPECT_TRUE(session_->is_alive());
  std::filesystem::remove_all(place_->root());
  std::filesystem::create_directory(place_->root());
  std::ofstream(place_->root() + "/g") << "x";
  // Where it takes a call to find out, that call says that it is of no use any more.
  if (session_->is_alive()) {
    EXPECT_ERROR(ENOTCONN, session_->status("g", soon()));
  }
  EXPECT_FALSE(session_->is_alive());
  const Result<std::unique_ptr<PoolSession>> again = place_->open();
  ASSERT_OK(again);
  EXPECT_OK((*again)->status("g", soon()));
}

TEST_P(PoolSessionContract, NothingIsChangedAfterTheDeadline) {
  ASSERT_OK(session_->make_directory("d", 0700, soon()));
  const Bytes bytes = bytes_of(10);
  const PoolFilePtr file = make("f", bytes);
  ASSERT_NE(nullptr, file);
  const Deadline past = std::chrono::steady_clock::now();
  const auto each = [&](const std::function<Result<void>(PoolSession&)>& call) {
    const Result<std::unique_ptr<PoolSession>> session = place_->open();
    ASSERT_OK(session);
    EXPECT_ERROR(ETIMEDOUT, call(**session));
  };
  each([&](PoolSession& s) -> Result<void> {
    static_cast<void>(TRY(s.create("new", 0600, past)));
    return {};
  });
  each([&](PoolSession& s) { return s.link(*file, "link", past); });
  each([&](PoolSession& s) { return s.rename("f", "moved", past); });
  each([&](PoolSession& s) { return s.remove("f", past); });
  each([&](PoolSession& s) -> Result<void> {
    TRY(s.make_directory("e", 0700, past));
    return {};
  });
  each([&](PoolSession& s) { return s.remove_directory("d", past); });
  each([&](PoolSession& s) {
    return s.write(*file, 0, Bytes(10, std::byte{1}), PoolWrite::kNow, past);
  });
  EXPECT_EQ((std::multiset<std::string>{"d", "f"}), names(""));
  EXPECT_EQ(bytes, get("f"));
}

TEST_P(PoolSessionContract, WritesOverWhatStandsThere) {
  Bytes expected = bytes_of(100);
  ASSERT_NE(nullptr, make("f", expected));
  const Result<PoolFilePtr> file = session_->open_to_write("f", soon());
  ASSERT_OK(file);
  const Bytes bytes(50, std::byte{7});
  EXPECT_OK(session_->write(**file, 0, bytes, PoolWrite::kNow, soon()));
  std::copy(bytes.begin(), bytes.end(), expected.begin());
  EXPECT_EQ(expected, get("f"));
  EXPECT_ERROR(ENOENT, session_->open_to_write("no", soon()));
}

INSTANTIATE_TEST_SUITE_P(All, PoolSessionContract, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

// ---- what only a server can do

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

class NfsSessionTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<PoolSession>> open(Deadline deadline = soon()) {
    return open_nfs_session(TRY(parse_pool_uri(server_.uri())), deadline);
  }

  const testing::TempDir dir_;
  testing::NfsServer server_{dir_.path(), dir_.path() + "-nfs"};
};

TEST_F(NfsSessionTest, AServerThatStopsCostsTheDeadlineAndTheSession) {
  const Result<std::unique_ptr<PoolSession>> session = open();
  ASSERT_OK(session);
  server_.signal_it(SIGSTOP);
  const testing::Pulse pulse;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_ERROR(ETIMEDOUT, (*session)->status("f", in(std::chrono::milliseconds{300})));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, std::chrono::milliseconds{300});
  EXPECT_LT(took - pulse.lost(), std::chrono::milliseconds{300 + 500});
  EXPECT_ERROR(ENOTCONN, (*session)->status("f", soon()));
  EXPECT_ERROR(ETIMEDOUT, open(in(std::chrono::milliseconds{300})));
  server_.signal_it(SIGCONT);
  const Result<std::unique_ptr<PoolSession>> again = open();
  ASSERT_OK(again);
  EXPECT_ERROR(ENOENT, (*again)->status("f", soon()));
}

TEST_F(NfsSessionTest, AServerThatDiedIsNotWaitedFor) {
  const Result<std::unique_ptr<PoolSession>> session = open();
  ASSERT_OK(session);
  server_.signal_it(SIGKILL);
  EXPECT_ERROR(ENOTCONN, (*session)->status("f", soon()));
  EXPECT_ERROR(ENOTCONN, open());
}

TEST_F(NfsSessionTest, AConnectionThatWasClosedWhileNobodyUsedItIsNoticed) {
  const Result<std::unique_ptr<PoolSession>> session = open();
  ASSERT_OK(session);
  EXPECT_ERROR(ENOENT, (*session)->status("f", soon()));
  EXPECT_TRUE((*session)->is_alive());
  PoolClient client("kv-pool", [this](Deadline deadline) { return open(deadline); });
  const auto ask = [&client] {
    return client.call<PoolStatus>(
        PoolClass::kBackground, soon(),
        [](PoolSession& pool, Deadline deadline) { return pool.status("f", deadline); });
  };
  while (!client.is_up()) std::this_thread::yield();
  // All threads of the class have a session; whoever takes a call.
  for (std::size_t i = 0; i < 10 * PoolClient::kThreads; ++i) EXPECT_ERROR(ENOENT, ask());
  server_.signal_it(SIGKILL);
  server_.up();
  EXPECT_FALSE((*session)->is_alive());
  for (std::size_t i = 0; i < 10 * PoolClient::kThreads; ++i) EXPECT_ERROR(ENOENT, ask());
  EXPECT_EQ(0u, client.health().failed);
  EXPECT_EQ(0, client.health().last.code);
}

TEST_F(NfsSessionTest, AServerThatStartedAnewBetweenWriteAndCommitIsNoticed) {
  const std::time_t began = std::time(nullptr);
  const Result<std::unique_ptr<PoolSession>> before = open();
  ASSERT_OK(before);
  const Result<PoolFilePtr> file = (*before)->create("f", 0600, soon());
  ASSERT_OK(file);
  const Bytes bytes(100'000, std::byte{7});
  EXPECT_OK((*before)->write(**file, 0, bytes, PoolWrite::kAtCommit, soon()));
  server_.signal_it(SIGKILL);
  // Ganesha's runs differ by the second in which they began.
  while (std::time(nullptr) <= began + 1) std::this_thread::yield();
  server_.up();
  const Result<std::unique_ptr<PoolSession>> after = open();
  ASSERT_OK(after);
  EXPECT_ERROR(EAGAIN, (*after)->commit(**file, soon()));
  EXPECT_OK((*after)->write(**file, 0, bytes, PoolWrite::kAtCommit, soon()));
  EXPECT_OK((*after)->commit(**file, soon()));
}

TEST(NfsMountTest, SaysWhatIsNotExported) {
  const testing::SharedNfsServer& server = testing::SharedNfsServer::get();
  const Result<PoolUri> uri = parse_pool_uri(server.uri(server.root() + "/no/such"));
  ASSERT_OK(uri);
  EXPECT_ERROR(ENOENT, open_nfs_session(*uri, soon()));
  PoolUri elsewhere = *uri;
  elsewhere.path = "/elsewhere";
  EXPECT_FALSE(open_nfs_session(elsewhere, soon()).ok());
}

}  // namespace
}  // namespace kvcachefs

// A volume without a kernel: on temporary device directories, with a store that outlives it, so
// that a test can end a run in order, kill the daemon, or pull the plug, and look at what the
// next run makes of it.
//
// Threads run only between start() and the end of the run; settle() ends a run in order, which
// seals and reaps all there is at once, and begins the next.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backend/base/log.h"
#include "backend/base/must_wait.h"
#include "backend/device_dir.h"
#include "fs/volume.h"
#include "metadata/catalog.h"
#include "metadata/memory_store.h"
#include "metadata/rocksdb_store.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs::testing {

// What a test does to the machine below.
struct Faults {
  std::atomic<bool> dead{false};      // the process is gone: nothing it does reaches a disk
  std::set<ObjectId> unsyncable;      // fdatasync of their backing files fails; before start()
  std::set<ObjectId> unremovable;     // so does unlink
  std::set<ObjectId> unreadable;      // they do not open for reading; before start()
  std::atomic<bool> no_space{false};  // no new backing files
  std::atomic<bool> no_removal{false};   // no unlink of any
  std::atomic<bool> no_open{false};      // nor an open
  std::atomic<bool> slow_sync{false};    // a sync of a device takes as long as this is so
  std::atomic<bool> no_sync{false};      // such a sync fails
  std::atomic<bool> no_commit{false};    // the database takes no writes
  std::atomic<std::uint64_t> failed{0};  // by one of the last three, or a sync of the database
  std::atomic<std::uint64_t> uses_asked{0};  // of backing files, by whoever
  // Called by who reads the database; set before start().
  std::function<void(Table table, std::string_view key)> on_read;
  // The same of who writes to it.
  std::function<void()> on_write;
  // Called by who makes or removes a backing file, with the path of its device; set before
  // start().
  std::function<void(const std::string& device)> on_device_write;
  // The same of who opens one or looks at it, and of who syncs a device.
  std::function<void(const std::string& device)> on_device_read;
  std::function<void(const std::string& device)> on_device_sync;
  std::atomic<bool> cold{false};           // nothing of the devices is in memory
  std::atomic<bool> no_store_sync{false};  // a sync of the database fails
  std::atomic<int> checks{0};              // of devices
  // What creates and checks on a device fail with, by its path.
  void set_ill(const std::string& path, int error) {
    const std::lock_guard lock(ill_mutex);
    ill[path] = error;
  }
  int how_ill(const std::string& path) {
    const std::lock_guard lock(ill_mutex);
    const auto at = ill.find(path);
    return at == ill.end() ? 0 : at->second;
  }
  Error failure(int error) {
    failed.fetch_add(1);
    return fail(error, "a fault");
  }
  std::mutex ill_mutex;
  std::map<std::string, int> ill;  // under ill_mutex
};

class RecordedNotifications : public KernelNotifications {
 public:
  void invalidate_entry(InodeNumber parent, std::string name) override {
    const std::lock_guard lock(mutex_);
    entries_.emplace(parent, std::move(name));
  }
  void invalidate_attributes(InodeNumber inode) override {
    const std::lock_guard lock(mutex_);
    attributes_.insert(inode);
  }
  void invalidate_attributes_at_once(InodeNumber inode) override {
    invalidate_attributes(inode);
    const std::lock_guard lock(mutex_);
    at_once_.push_back(inode);
  }
  // Those that were told before the call ended, since the last question.
  std::vector<InodeNumber> take_at_once() {
    const std::lock_guard lock(mutex_);
    return std::exchange(at_once_, {});
  }
  void invalidate_data(InodeNumber inode) override {
    invalidate_attributes(inode);
    const std::lock_guard lock(mutex_);
    data_.insert(inode);
  }
  void drop_listing(InodeNumber directory, std::uint64_t ticket) override {
    const std::lock_guard lock(mutex_);
    listings_.emplace_back(directory, ticket);
  }
  // The messages about listings since the last call: directory and ticket.
  std::vector<std::pair<InodeNumber, std::uint64_t>> take_listings() {
    const std::lock_guard lock(mutex_);
    return std::exchange(listings_, {});
  }
  [[nodiscard]] bool has_data(InodeNumber inode) const {
    const std::lock_guard lock(mutex_);
    return data_.count(inode) > 0;
  }
  [[nodiscard]] bool has_entry(InodeNumber parent, const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return entries_.count({parent, name}) > 0;
  }
  [[nodiscard]] bool has_attributes(InodeNumber inode) const {
    const std::lock_guard lock(mutex_);
    return attributes_.count(inode) > 0;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::pair<InodeNumber, std::string>> entries_;
  std::set<InodeNumber> attributes_;
  std::set<InodeNumber> data_;
  std::vector<InodeNumber> at_once_;
  std::vector<std::pair<InodeNumber, std::uint64_t>> listings_;
};

// The store of one run, over the one that outlives it.
class RunStore : public Store {
 public:
  RunStore(std::shared_ptr<Store> below, std::shared_ptr<Faults> faults)
      : below_(std::move(below)), faults_(std::move(faults)) {}
  Result<std::optional<std::string>> get(Table table, std::string_view key) override {
    if (faults_->on_read) faults_->on_read(table, key);
    return below_->get(table, key);
  }
  Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view, std::string_view)>& visit) override {
    if (faults_->on_read) faults_->on_read(table, prefix);
    return below_->scan(table, prefix, from, visit);
  }
  Result<void> write(const WriteBatch& batch) override {
    if (faults_->dead) return fail(EIO, "dead");
    if (faults_->no_commit) return faults_->failure(EIO);
    if (faults_->on_write) faults_->on_write();
    return below_->write(batch);
  }
  Result<void> sync() override {
    if (faults_->dead) return fail(EIO, "dead");
    if (faults_->no_store_sync) return faults_->failure(EIO);
    return below_->sync();
  }
  [[nodiscard]] std::uint64_t memory_bytes() const override { return below_->memory_bytes(); }
  [[nodiscard]] std::uint64_t disk_bytes() const override { return below_->disk_bytes(); }

 private:
  const std::shared_ptr<Store> below_;
  const std::shared_ptr<Faults> faults_;
};

class FaultyTier : public Tier {
 public:
  FaultyTier(std::unique_ptr<Tier> below, std::shared_ptr<Faults> faults)
      : below_(std::move(below)), faults_(std::move(faults)) {}
  [[nodiscard]] const TierInfo& info() const noexcept override { return below_->info(); }
  Result<UniqueFd> create(std::uint64_t object) override {
    if (faults_->dead) return fail(EIO, "dead");
    if (faults_->no_space) return fail(ENOSPC, "full");
    if (const int error = faults_->how_ill(info().path)) return fail(error, "ill");
    if (faults_->on_device_write) faults_->on_device_write(info().path);
    return below_->create(object);
  }
  Result<UniqueFd> open(std::uint64_t object, int flags) override {
    if (faults_->no_open) return faults_->failure(EMFILE);
    TRY(ask());
    if (faults_->unreadable.count(object) > 0 && (flags & O_ACCMODE) == O_RDONLY)
      return fail(EIO, "unreadable");
    // fdatasync(2) of an O_PATH descriptor fails, and so does a read.
    if (faults_->unsyncable.count(object) > 0 && (flags & O_ACCMODE) == O_RDONLY)
      return below_->open(object, O_PATH);
    return below_->open(object, flags);
  }
  Result<struct stat> status(std::uint64_t object) override {
    TRY(ask());
    return below_->status(object);
  }
  Result<bool> is_used(std::uint64_t object) override {
    Result<bool> used = below_->is_used(object);
    faults_->uses_asked.fetch_add(1);
    return used;
  }
  Result<void> remove(std::uint64_t object) override {
    if (faults_->dead || faults_->unremovable.count(object) > 0) return fail(EIO, "dead");
    if (faults_->no_removal) return faults_->failure(EIO);
    if (faults_->on_device_write) faults_->on_device_write(info().path);
    return below_->remove(object);
  }
  Result<void> quarantine(std::uint64_t object) override {
    if (faults_->dead) return fail(EIO, "dead");
    return below_->quarantine(object);
  }
  Result<void> sync() override;
  Result<void> check(TierCheck how) override {
    faults_->checks.fetch_add(1);
    if (const int error = faults_->how_ill(info().path)) return fail(error, "ill");
    return below_->check(how);
  }
  Result<struct statvfs> space() override { return below_->space(); }
  Result<std::string> mount_identity() override { return below_->mount_identity(); }
  Result<void> each(const std::function<bool(std::uint64_t)>& visit,
                    const std::function<void(const std::string&)>& unknown) override {
    return below_->each(visit, unknown);
  }

 private:
  Result<void> ask() {
    if (!faults_->cold) return {};
    if (refuses_to_wait()) return fail(kMustWait, "cold");
    if (faults_->on_device_read) faults_->on_device_read(info().path);
    return {};
  }

  const std::unique_ptr<Tier> below_;
  const std::shared_ptr<Faults> faults_;
};

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    throw std::runtime_error(std::string(result.error().what) + ": " +
                             std::strerror(result.error().code));
  }
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

struct TestVolumeOptions {
  bool rocksdb = false;
  int devices = 1;
  VolumeOptions volume;
  BackingIds* backing_ids = nullptr;
};

class TestVolume {
 public:
  // This process: what is asked of /proc about a caller is true.
  static inline const Caller kRoot{.uid = 0, .gid = 0, .pid = ::getpid(), .umask = 0};

  explicit TestVolume(TestVolumeOptions options = {}) : options_(options) {
    // What a run logs is not what a test looks at.
    if (std::getenv("KVCACHEFS_TEST_LOG") == nullptr)
      must(log_open({.file = "", .level = LogLevel::kOff}));
    if (!options_.rocksdb) store_ = std::make_shared<MemoryStore>();
    for (int i = 0; i < options_.devices; ++i) add_device();
    run();
  }
  ~TestVolume() { end(); }

  Volume* operator->() noexcept { return volume_.get(); }
  Volume& operator*() noexcept { return *volume_; }
  [[nodiscard]] Catalog& catalog() noexcept { return *catalog_; }
  // The store below; the volume must have ended for a test to write to it.
  [[nodiscard]] Store& store() noexcept { return *store_; }
  [[nodiscard]] Faults& faults() noexcept { return *faults_; }
  [[nodiscard]] RecordedNotifications& notifications() noexcept { return notifications_; }
  [[nodiscard]] const std::string& directory() const noexcept { return dir_.path(); }
  [[nodiscard]] const std::vector<std::string>& device_paths() const noexcept {
    return device_paths_;
  }

  // ---- runs ----
  // Of the next run.
  void set_pool(PoolService* pool) { options_.volume.pool = pool; }
  void set_unreadable(std::set<ObjectId> objects) { unreadable_ = std::move(objects); }
  void add_device() {
    device_paths_.push_back(dir_ / ("device" + std::to_string(device_paths_.size())));
    must_call(::mkdir(device_paths_.back().c_str(), 0700));
  }
  void start() { volume_->start(); }
  // Ends the run in order; nothing may be used until run().
  void stop_cleanly() {
    volume_->stop(30);
    end();
  }
  // Ends the run as kill -9 does.
  void kill() {
    faults_->dead = true;
    end();
  }
  // The same for the whole machine; what the disks lost must be done by hand.
  void pull_plug() {
    kill();
    boot_again();
  }
  // The machine is another one to the next run; after the end of a run.
  void boot_again() {
    open_store();
    const auto catalog =
        must(Catalog::create(std::make_unique<RunStore>(store_, std::make_shared<Faults>())));
    RunMarker marker = must(catalog->run_marker());
    marker.boot_id = "another boot";
    must(catalog->set_run_marker(marker));
  }
  void run() {
    const Result<void> opened = try_run();
    if (!opened.ok()) throw std::runtime_error(problem_);
  }
  Result<void> try_run() {
    faults_ = std::make_shared<Faults>();
    faults_->unreadable = unreadable_;
    open_store();
    catalog_ = TRY(Catalog::create(std::make_unique<RunStore>(store_, faults_)));
    std::vector<std::unique_ptr<Tier>> tiers;
    for (const std::string& path : device_paths_) {
      auto device = TRY(DeviceDir::open(
          {.path = path, .size_limit_bytes = 0, .catalog = TRY(catalog_->uuid())}, true));
      tiers.push_back(std::make_unique<FaultyTier>(std::move(device), faults_));
    }
    volume_ = TRY(Volume::open(*catalog_, std::move(tiers), options_.volume,
                               options_.backing_ids, &notifications_, problem_));
    return {};
  }
  void crash_daemon() {
    kill();
    run();
  }
  void crash_machine() {
    pull_plug();
    run();
  }
  // Everything that is ready is sealed and everything nameless reaped.
  void settle() {
    start();
    stop_cleanly();
    run();
  }

  // ---- calls, made shorter ----
  InodeNumber mkdir(InodeNumber parent, std::string_view name, mode_t mode = 0755) {
    return must(volume_->make_node(parent, name, S_IFDIR | mode, 0, kRoot)).inode;
  }
  Created create(InodeNumber parent, std::string_view name, int flags = O_RDWR,
                 mode_t mode = 0644) {
    return must(volume_->create(parent, name, mode, flags, kRoot));
  }
  OpenFile& open(InodeNumber inode, int flags) {
    return *must(volume_->open(inode, flags, kRoot)).file;
  }
  void write(OpenFile& file, std::string_view bytes, std::uint64_t offset = 0) {
    const auto data = std::as_bytes(std::span(bytes.data(), bytes.size()));
    ASSERT_EQ(bytes.size(), must(volume_->write(file, data, offset, kRoot)));
  }
  // close(2) of the last descriptor.
  void close(OpenFile& file) {
    EXPECT_OK(volume_->flush(file, kRoot));
    volume_->release(file);
  }
  InodeNumber store_file(InodeNumber parent, std::string_view name, std::string_view bytes) {
    const Created made = create(parent, name);
    write(*made.opened.file, bytes);
    close(*made.opened.file);
    return made.entry.inode;
  }
  void rewrite(InodeNumber inode, std::string_view bytes) {
    OpenFile& file = open(inode, O_WRONLY | O_TRUNC);
    write(file, bytes);
    close(file);
  }
  // As an application that cannot do without it.
  void sync(InodeNumber inode) {
    OpenFile& file = open(inode, O_RDONLY);
    EXPECT_OK(volume_->fsync(file, false));
    volume_->release(file);
  }
  Result<std::string> read(InodeNumber inode) {
    OpenFile* const file = TRY(volume_->open(inode, O_RDONLY, kRoot)).file;
    std::string bytes(1 << 20, '\0');
    const Result<std::size_t> got =
        volume_->read(*file, std::as_writable_bytes(std::span(bytes)), 0);
    volume_->release(*file);
    if (!got.ok()) return got.error();
    bytes.resize(*got);
    return bytes;
  }
  // The inode at a path below the root; no lookup stays counted.
  Result<InodeNumber> resolve(std::string_view path) {
    InodeNumber at = kRootInode;
    while (!path.empty()) {
      const std::size_t end = path.find('/');
      const InodeNumber next = TRY(volume_->lookup(at, path.substr(0, end))).inode;
      volume_->forget(next, 1);
      at = next;
      path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
    }
    return at;
  }
  Result<std::string> read_path(std::string_view path) { return read(TRY(resolve(path))); }
  std::vector<std::string> names_in(InodeNumber directory) {
    std::vector<std::string> names;
    must(volume_->list(directory, 0, false, [&](const ListedEntry& listed) {
      if (listed.entry.name != "." && listed.entry.name != "..")
        names.push_back(listed.entry.name);
      return true;
    }));
    return names;
  }
  struct stat stat_of(InodeNumber inode) {
    return must(volume_->attributes(inode)).attributes;
  }
  InodeRecord record_of(InodeNumber inode) {
    const auto record = must(catalog_->find_inode(inode));
    if (!record) throw std::runtime_error("no such inode record");
    return *record;
  }
  DataState state_of(InodeNumber inode) { return record_of(inode).state; }
  // Backing files of the first device, whether or not anything stands for them.
  std::uint64_t objects() {
    std::uint64_t count = 0;
    const Result<void> counted = volume_->devices().front()->each(
        [&](std::uint64_t) {
          ++count;
          return true;
        },
        [](const std::string&) {});
    if (!counted.ok()) throw std::runtime_error("objects cannot be counted");
    return count;
  }
  std::string backing_path(ObjectId object, int device = 0) {
    char path[40];
    std::snprintf(path, sizeof path, "/objects/%02x/%016llx",
                  static_cast<unsigned>(object >> 12 & 0xff),
                  static_cast<unsigned long long>(object));
    return device_paths_[static_cast<std::size_t>(device)] + path;
  }
  std::string backing_path_of(InodeNumber inode) {
    return backing_path(record_of(inode).object);
  }
  [[nodiscard]] static bool exists(const std::string& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0;
  }

  // True as soon as `condition` holds; false after a deadline.
  template <class Condition>
  static bool wait_for(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  // For what the code under test judges by a clock.
  static void let_pass(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    wait_for([&] { return std::chrono::steady_clock::now() > end; });
  }

 private:
  static void must_call(int result) {
    if (result != 0) throw std::system_error(errno, std::generic_category());
  }
  void open_store() {
    if (!store_) {
      store_ = must(RocksdbStore::open(
          dir_ / "db", {.cache_bytes = 8 << 20, .write_buffer_bytes = 8 << 20}, true));
    }
  }
  void end() {
    volume_.reset();
    catalog_.reset();
    if (options_.rocksdb) store_.reset();
  }

  TestVolumeOptions options_;
  // In memory: what a power cut takes is the test's choice, and syncs cost nothing.
  TempDir dir_{"/dev/shm"};
  std::set<ObjectId> unreadable_;
  std::vector<std::string> device_paths_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<Faults> faults_;
  RecordedNotifications notifications_;
  std::string problem_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<Volume> volume_;
};

inline Result<void> FaultyTier::sync() {
  TestVolume::wait_for([this] { return !faults_->slow_sync; });
  if (faults_->no_sync) return fail(EIO, "a fault");
  if (faults_->on_device_sync) faults_->on_device_sync(info().path);
  return below_->sync();
}

}  // namespace kvcachefs::testing

namespace kvcachefs {

inline const Caller& kRoot = testing::TestVolume::kRoot;

}  // namespace kvcachefs

#include "backend/pool/nfs_session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/pool/libnfs.h"
#include "backend/pool/nfs_answers.h"
#include "backend/pool/nfs_connection.h"
#include "backend/pool/nfs_directories.h"
#include "backend/pool/nfs_file.h"
#include "backend/pool/nfs_mount.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"

namespace kvcachefs {
namespace {

// Requests of one read or write that are under way together. Of 1 MiB each they fill 10 Gbit/s at 6 ms.
constexpr std::size_t kDepth = 8;
constexpr std::size_t kListedAtOnce = 64 * 1024;  // bytes of a READDIR
// What a server must take and give at least; less is no server for files of megabytes.
constexpr std::size_t kLeastAtOnce = 4096;

using Handle = NfsHandle;
using Found = NfsFound;

NfsFile& of(PoolFile& file) noexcept { return static_cast<NfsFile&>(file); }

class NfsSession : public PoolSession {
 public:
  explicit NfsSession(std::shared_ptr<PoolGovernor> governor)
      : governor_(std::move(governor)) {}

  Result<void> open(const PoolUri& uri, Deadline deadline) {
    const NfsUser user{.uid = uri.uid, .gid = uri.gid};
    NfsExport mounted = TRY(mount_nfs_export(uri, user, deadline));
    root_ = std::move(mounted.root);
    TRY(connection_.connect(uri.host,
                            {.program = NFS_PROGRAM, .version = NFS_V3, .port = uri.nfs_port},
                            user, deadline));
    TRY(ask_sizes(deadline));
    // What of the path is below the export.
    if (!mounted.below.empty()) {
      const Found found = TRY(find_handle(mounted.below, deadline));
      if (found.status.kind != PoolKind::kDirectory) return fail(ENOTDIR, "pool: no directory");
      root_ = found.handle;
    }
    has_links_ = TRY(attributes(root_, deadline)).nlink > 0;
    return {};
  }

  // Of what is below the pool's directory, once that is open: on the way there paths are the export's.
  void share(std::shared_ptr<NfsDirectories> directories) {
    directories_ = std::move(directories);
  }

  // A server sends nothing unasked.
  [[nodiscard]] bool is_alive() override { return connection_.is_alive(); }

  Result<PoolFound> find(std::string_view path, Deadline deadline) override {
    TRY(check_pool_path(path));
    const auto asked = std::chrono::steady_clock::now();
    Found found = TRY(find_handle(path, deadline));
    PoolFound out{.status = found.status, .file = nullptr};
    // Whoever finds a directory mostly looks into it next.
    if (found.status.kind == PoolKind::kDirectory && !path.empty())
      directories_->put(root_, path, found.handle, asked);
    if (found.status.kind == PoolKind::kFile)
      out.file = std::make_shared<NfsFile>(std::move(found.handle), found.status);
    return out;
  }

  Result<PoolStatus> status(PoolFile& file, Deadline deadline) override {
    return attributes(of(file).handle(), deadline);
  }

  Result<PoolFilePtr> open(std::string_view path, Deadline deadline) override {
    TRY(check_pool_path(path));
    PoolFound found = TRY(find(path, deadline));
    if (found.status.kind == PoolKind::kDirectory) return fail(EISDIR, "pool: a directory");
    if (found.status.kind != PoolKind::kFile) return fail(EBADMSG, "pool: no regular file");
    return std::move(found.file);
  }

  Result<void> find_directory(std::string_view path, Deadline deadline) override {
    TRY(check_pool_path(path));
    return in_directory(
        path, [](const Handle&) -> Result<void> { return {}; }, [] { return true; }, deadline);
  }

  Result<PoolRead> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                              const PoolSink& sink, PoolPace pace, Deadline deadline) override;
  Result<PoolFilePtr> create(std::string_view path, std::uint32_t mode,
                             Deadline deadline) override;
  Result<void> write_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                           const PoolFill& fill, PoolWrite when, Deadline deadline) override {
    static_cast<void>(TRY(send(file, offset, size, fill, when, deadline)));
    return {};
  }
  Result<void> commit(PoolFile& file, Deadline deadline) override {
    static_cast<void>(TRY(commit_all(file, deadline)));
    return {};
  }
  Result<PoolStatus> store(PoolFile& file, std::uint64_t size, const PoolFill& fill,
                           Deadline deadline) override;
  Result<void> link(PoolFile& file, std::string_view to, Deadline deadline) override;
  Result<void> rename(std::string_view from, std::string_view to, Deadline deadline) override;
  Result<void> remove(std::string_view path, Deadline deadline) override;
  Result<std::uint64_t> make_directory(std::string_view path, std::uint32_t mode,
                                       Deadline deadline) override;
  Result<void> remove_directory(std::string_view path, Deadline deadline) override;
  Result<void> list(std::string_view path, const std::function<bool(const PoolEntry&)>& visit,
                    Deadline deadline) override;
  Result<void> list_statuses(
      std::string_view path,
      const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit,
      Deadline deadline) override;
  Result<void> touch(PoolFile& file, Deadline deadline) override;
  Result<PoolSpace> space(Deadline deadline) override;

 private:
  struct Piece {
    std::uint64_t at = 0;  // of those to be transferred
    std::size_t size = 0;
  };

  // One request and its answer. `take` looks at the decoded answer and returns a Result.
  template <class Res, class Args, class Request, class Take>
  auto call(Request request, Args& args, Take take, Deadline deadline)
      -> decltype(take(std::declval<const Res&>())) {
    using Taken = decltype(take(std::declval<const Res&>()));
    std::optional<Taken> taken;
    TRY(connection_.send(
        [&](rpc_context* rpc, void* call) {
          return request(rpc, NfsConnection::answer_to, &args, call);
        },
        [&](const void* result) {
          if (result != nullptr) taken.emplace(take(*static_cast<const Res*>(result)));
        }));
    TRY(connection_.run(deadline));
    if (!taken) return fail(ENOTCONN, "pool: no answer");
    return std::move(*taken);
  }

  Result<void> ask_sizes(Deadline deadline);
  Result<PoolStatus> attributes(const Handle& handle, Deadline deadline);
  Result<Found> look_up(const Handle& directory, std::string_view name, Deadline deadline);
  Result<Found> find_handle(std::string_view path, Deadline deadline);
  Result<Handle> directory_at(std::string_view path, Deadline deadline);
  Result<void> list_in(const Handle& directory,
                       const std::function<bool(const PoolEntry&)>& visit, Deadline deadline);
  Result<void> list_statuses_in(
      std::string_view path, const Handle& directory,
      const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit, Deadline deadline);
  // Puts a piece on its way; the request is to be told of its answer.
  using Start = std::function<Result<void>(Piece, std::shared_ptr<PoolGovernor::Request>)>;
  Result<void> transfer(PoolWay way, std::uint64_t size, std::size_t most,
                        const std::size_t& depth, const Start& start, Deadline deadline);
  // Both: what the file is after them, where the server says it; of send(), where it was one request.
  Result<std::optional<PoolStatus>> send(PoolFile& file, std::uint64_t offset,
                                         std::uint64_t size, const PoolFill& fill,
                                         PoolWrite when, Deadline deadline);
  Result<std::optional<PoolStatus>> commit_all(PoolFile& file, Deadline deadline);
  Result<void> check_root(Deadline deadline);
  Result<void> check_dir(const post_op_attr& directory, nfsstat3 status, const char* what) {
    return has_links_ ? check_in(directory, status, what) : check(status, what);
  }

  // `act` with the handle of a directory; once more when it, or one above, is not there any more: it may
  // have been remembered. `may_repeat`: whether it has done nothing yet that would be done twice.
  template <class Act, class MayRepeat>
  auto in_directory(std::string_view path, Act act, MayRepeat may_repeat, Deadline deadline)
      -> decltype(act(std::declval<const Handle&>())) {
    const auto once = [&]() -> decltype(act(std::declval<const Handle&>())) {
      return act(TRY(directory_at(path, deadline)));
    };
    auto acted = once();
    if (acted.ok() || acted.error().code != ESTALE || !may_repeat()) return acted;
    directories_->forget(root_, path);
    acted = once();
    if (acted.ok() || acted.error().code != ESTALE) return acted;
    // Whether it is the root that is not there any more.
    TRY(check_root(deadline));
    return acted;
  }

  // The same with the directory of `path` and the name in it.
  template <class Act>
  auto at(std::string_view path, Act act, Deadline deadline)
      -> decltype(act(std::declval<const Handle&>(), std::declval<std::string&>())) {
    TRY(check_pool_path(path));
    if (path.empty()) return fail(EINVAL, "pool: the root has no name");
    const auto [directory, name_view] = split_pool_path(path);
    std::string name(name_view);
    return in_directory(
        directory, [&](const Handle& handle) { return act(handle, name); }, [] { return true; },
        deadline);
  }

  const std::shared_ptr<PoolGovernor> governor_;
  std::shared_ptr<NfsDirectories> directories_ = std::make_shared<NfsDirectories>();
  NfsConnection connection_;
  Handle root_;
  bool has_links_ = false;  // the server counts those of directories
  std::size_t most_read_ = kMostAtOnce;
  std::size_t most_written_ = kMostAtOnce;
  // Of the requests of transfer() that are under way.
  std::deque<Piece> left_;
  std::optional<Error> failure_;
  // Of the WRITEs under way: the library may send straight from here.
  std::array<std::vector<std::byte>, kDepth> buffers_;
};

// ---- getting there

Result<void> NfsSession::ask_sizes(Deadline deadline) {
  FSINFO3args args{};
  args.fsroot = raw(root_);
  return call<FSINFO3res>(
      rpc_nfs3_fsinfo_async, args,
      [this](const FSINFO3res& answer) -> Result<void> {
        TRY(check(answer.status, "pool: FSINFO"));
        const FSINFO3resok& info = answer.FSINFO3res_u.resok;
        most_read_ = std::clamp<std::size_t>(info.rtmax, kLeastAtOnce, kMostAtOnce);
        most_written_ = std::clamp<std::size_t>(info.wtmax, kLeastAtOnce, kMostAtOnce);
        return {};
      },
      deadline);
}

// ---- names

Result<PoolStatus> NfsSession::attributes(const Handle& handle, Deadline deadline) {
  GETATTR3args args{};
  args.object = raw(handle);
  return call<GETATTR3res>(
      rpc_nfs3_getattr_async, args,
      [](const GETATTR3res& answer) -> Result<PoolStatus> {
        TRY(check(answer.status, "pool: GETATTR"));
        return status_of(answer.GETATTR3res_u.resok.obj_attributes);
      },
      deadline);
}

Result<Found> NfsSession::look_up(const Handle& directory, std::string_view name,
                                  Deadline deadline) {
  std::string text(name);
  LOOKUP3args args{};
  args.what.dir = raw(directory);
  args.what.name = text.data();
  std::optional<PoolStatus> status;
  Handle handle = TRY(call<LOOKUP3res>(
      rpc_nfs3_lookup_async, args,
      [&](const LOOKUP3res& answer) -> Result<Handle> {
        if (answer.status != NFS3_OK)
          TRY(check_dir(answer.LOOKUP3res_u.resfail.dir_attributes, answer.status,
                        "pool: LOOKUP"));
        status = status_of(answer.LOOKUP3res_u.resok.obj_attributes);
        return handle_of(answer.LOOKUP3res_u.resok.object);
      },
      deadline));
  if (!status) status = TRY(attributes(handle, deadline));
  return Found{.handle = std::move(handle), .status = *status};
}

Result<Found> NfsSession::find_handle(std::string_view path, Deadline deadline) {
  if (path.empty()) return Found{.handle = root_, .status = TRY(attributes(root_, deadline))};
  return at(
      path,
      [&](const Handle& directory, const std::string& name) {
        return look_up(directory, name, deadline);
      },
      deadline);
}

Result<Handle> NfsSession::directory_at(std::string_view path, Deadline deadline) {
  if (path.empty()) return root_;
  const auto now = std::chrono::steady_clock::now();
  if (std::optional<Handle> known = directories_->find(root_, path)) return std::move(*known);
  const auto [above, name] = split_pool_path(path);
  const Handle parent = TRY(directory_at(above, deadline));
  Found found = TRY(look_up(parent, name, deadline));
  if (found.status.kind != PoolKind::kDirectory) return fail(ENOTDIR, "pool: no directory");
  directories_->put(root_, path, found.handle, now);
  return std::move(found.handle);
}

// Nothing can be had of a session whose own directory has gone; of what it has removed a server may tell the attributes.
Result<void> NfsSession::check_root(Deadline deadline) {
  const Result<Found> any = look_up(root_, kPoolService, deadline);
  if (any.ok() || any.error().code != ESTALE) return {};
  connection_.close();
  return fail(ENOTCONN, "pool: its directory is not there any more");
}

// ---- bytes

// Cuts `size` bytes into pieces of `most`, and has `start` put each on its way, `depth` at a time and as many as the governor
// lets; what is to be done once more comes back by `left_`.
Result<void> NfsSession::transfer(PoolWay way, std::uint64_t size, std::size_t most,
                                  const std::size_t& depth, const Start& start,
                                  Deadline deadline) {
  left_.clear();
  failure_.reset();
  std::uint64_t next = 0;
  while (true) {
    while (!failure_ && connection_.under_way() < depth && (!left_.empty() || next < size)) {
      const Piece piece = left_.empty() ? Piece{.at = next,
                                                .size = static_cast<std::size_t>(
                                                    std::min<std::uint64_t>(most, size - next))}
                                        : left_.front();
      auto request = governor_->admit(way, piece.size, connection_.under_way() == 0);
      if (request == nullptr) break;
      if (left_.empty()) {
        next += piece.size;
      } else {
        left_.pop_front();
      }
      if (const Result<void> started = start(piece, std::move(request)); !started.ok())
        failure_ = started.error();
    }
    if (connection_.under_way() == 0) break;
    const std::size_t before = connection_.under_way();
    TRY(connection_.run_until([&] { return connection_.under_way() < before; }, deadline));
  }
  if (failure_) return *failure_;
  return {};
}

Result<PoolRead> NfsSession::read_parts(PoolFile& file, std::uint64_t offset,
                                        std::uint64_t size, const PoolSink& sink, PoolPace pace,
                                        Deadline deadline) {
  const bool is_patient = pace == PoolPace::kPatient;
  const std::size_t most =
      is_patient ? std::min(most_read_, governor_->patient().piece()) : most_read_;
  std::size_t depth = is_patient ? PatientReads::kFew : kDepth;
  std::uint64_t end = size;
  bool is_as_opened = true;
  const auto arrived = [&](Piece piece, const READ3res& answer) -> Result<void> {
    TRY(check(answer.status, "pool: READ"));
    const READ3resok& got = answer.READ3res_u.resok;
    if (got.data.data_len != got.count || got.count > piece.size)
      return fail(EBADMSG, "pool: the server read more than was asked for");
    const std::optional<PoolStatus> after = status_of(got.file_attributes);
    if (!after || !is_same_file(*after, file.status())) is_as_opened = false;
    if (got.count > 0)
      TRY(sink(offset + piece.at,
               std::as_bytes(std::span<const char>(got.data.data_val, got.count))));
    const std::uint64_t until = piece.at + got.count;
    if (got.count == piece.size) return {};
    if (got.eof != 0) {
      end = std::min(end, until);
    } else if (got.count == 0) {
      return fail(EIO, "pool: the server reads nothing where there is something");
    } else {
      left_.push_back({.at = until, .size = piece.size - got.count});
    }
    return {};
  };
  TRY(transfer(
      PoolWay::kRead, size, most, depth,
      [&](Piece piece, std::shared_ptr<PoolGovernor::Request> request) {
        return connection_.send(
            [&](rpc_context* rpc, void* call) {
              READ3args args{};
              args.file = raw(of(file).handle());
              args.offset = offset + piece.at;
              args.count = static_cast<count3>(piece.size);
              return rpc_nfs3_read_async(rpc, NfsConnection::answer_to, &args, call);
            },
            [this, piece, &arrived, &depth, is_patient,
             request = std::move(request)](const void* result) {
              if (result == nullptr) return;
              const auto took = request->answered(piece.size == most_read_);
              if (is_patient)
                depth = governor_->patient().after(depth, kDepth, piece.size, took);
              // After a failure nobody wants what is still on its way.
              if (failure_) return;
              const Result<void> taken = arrived(piece, *static_cast<const READ3res*>(result));
              if (!taken.ok()) failure_ = taken.error();
            });
      },
      deadline));
  return PoolRead{.count = end, .is_as_opened = is_as_opened && size > 0};
}

Result<std::optional<PoolStatus>> NfsSession::send(PoolFile& file, std::uint64_t offset,
                                                   std::uint64_t size, const PoolFill& fill,
                                                   PoolWrite when, Deadline deadline) {
  std::optional<PoolStatus> after;
  const stable_how stable = when == PoolWrite::kNow ? FILE_SYNC : UNSTABLE;
  std::vector<std::size_t> free_buffers(kDepth);
  std::iota(free_buffers.begin(), free_buffers.end(), 0);
  const auto arrived = [&](Piece piece, const WRITE3res& answer) -> Result<void> {
    TRY(check(answer.status, "pool: WRITE"));
    const WRITE3resok& put = answer.WRITE3res_u.resok;
    if (put.count > piece.size)
      return fail(EBADMSG, "pool: the server wrote more than it was given");
    if (put.count == 0) return fail(EIO, "pool: the server writes nothing");
    if (when == PoolWrite::kNow && put.committed != FILE_SYNC)
      return fail(EBADMSG, "pool: the server does not write to its disk when told to");
    if (put.committed != FILE_SYNC) {
      NfsVerifier verifier;
      std::copy_n(put.verf, verifier.size(), verifier.begin());
      of(file).wrote(verifier);
    }
    if (put.count < piece.size)
      left_.push_back({.at = piece.at + put.count, .size = piece.size - put.count});
    if (put.count == size) after = status_of(put.file_wcc.after);
    return {};
  };
  TRY(transfer(
      PoolWay::kWrite, size, most_written_, kDepth,
      [&](Piece piece, std::shared_ptr<PoolGovernor::Request> request) -> Result<void> {
        const std::size_t own = free_buffers.back();
        std::vector<std::byte>& buffer = buffers_[own];
        buffer.resize(std::max(buffer.size(), piece.size));
        TRY(fill(offset + piece.at, std::span(buffer.data(), piece.size)));
        free_buffers.pop_back();
        return connection_.send(
            [&](rpc_context* rpc, void* call) {
              WRITE3args args{};
              args.file = raw(of(file).handle());
              args.offset = offset + piece.at;
              args.count = static_cast<count3>(piece.size);
              args.stable = stable;
              args.data.data_len = static_cast<u_int>(piece.size);
              args.data.data_val = reinterpret_cast<char*>(buffer.data());
              return rpc_nfs3_write_async(rpc, NfsConnection::answer_to, &args, call);
            },
            [this, piece, own, &arrived, &free_buffers,
             request = std::move(request)](const void* result) {
              free_buffers.push_back(own);
              if (result == nullptr) return;
              request->answered(piece.size == most_written_);
              const Result<void> taken = arrived(piece, *static_cast<const WRITE3res*>(result));
              if (!taken.ok()) failure_ = taken.error();
            });
      },
      deadline));
  return after;
}

Result<std::optional<PoolStatus>> NfsSession::commit_all(PoolFile& file, Deadline deadline) {
  COMMIT3args args{};
  args.file = raw(of(file).handle());
  std::optional<PoolStatus> after;
  const NfsVerifier verifier = TRY(call<COMMIT3res>(
      rpc_nfs3_commit_async, args,
      [&](const COMMIT3res& answer) -> Result<NfsVerifier> {
        TRY(check(answer.status, "pool: COMMIT"));
        after = status_of(answer.COMMIT3res_u.resok.file_wcc.after);
        NfsVerifier copy;
        std::copy_n(answer.COMMIT3res_u.resok.verf, copy.size(), copy.begin());
        return copy;
      },
      deadline));
  if (!of(file).is_whole(verifier))
    return fail(EAGAIN, "pool: the server started anew, and may have lost what was written");
  return after;
}

// A file of one request goes to the disk with it.
Result<PoolStatus> NfsSession::store(PoolFile& file, std::uint64_t size, const PoolFill& fill,
                                     Deadline deadline) {
  const bool is_one = size <= most_written_;
  std::optional<PoolStatus> after =
      TRY(send(file, 0, size, fill, is_one ? PoolWrite::kNow : PoolWrite::kAtCommit, deadline));
  if (!is_one) after = TRY(commit_all(file, deadline));
  if (after && after->size == size) return *after;
  return attributes(of(file).handle(), deadline);
}

// ---- changes

Result<PoolFilePtr> NfsSession::create(std::string_view path, std::uint32_t mode,
                                       Deadline deadline) {
  return at(
      path,
      [&](const Handle& directory, std::string& name) -> Result<PoolFilePtr> {
        CREATE3args args{};
        args.where.dir = raw(directory);
        args.where.name = name.data();
        args.how.mode = GUARDED;
        args.how.createhow3_u.g_obj_attributes = with_mode(mode);
        std::optional<PoolStatus> status;
        Handle handle = TRY(call<CREATE3res>(
            rpc_nfs3_create_async, args,
            [&](const CREATE3res& answer) -> Result<Handle> {
              if (answer.status != NFS3_OK)
                TRY(check_dir(answer.CREATE3res_u.resfail.dir_wcc.after, answer.status,
                              "pool: CREATE"));
              const CREATE3resok& made = answer.CREATE3res_u.resok;
              status = status_of(made.obj_attributes);
              if (made.obj.handle_follows == 0) return Handle();
              return handle_of(made.obj.post_op_fh3_u.handle);
            },
            deadline));
        Found found;
        if (handle.empty()) {
          found = TRY(look_up(directory, name, deadline));
        } else {
          if (!status) status = TRY(attributes(handle, deadline));
          found = {.handle = std::move(handle), .status = *status};
        }
        return PoolFilePtr(std::make_shared<NfsFile>(std::move(found.handle), found.status));
      },
      deadline);
}

Result<void> NfsSession::link(PoolFile& file, std::string_view to, Deadline deadline) {
  return at(
      to,
      [&](const Handle& directory, std::string& name) {
        LINK3args args{};
        args.file = raw(of(file).handle());
        args.link.dir = raw(directory);
        args.link.name = name.data();
        return call<LINK3res>(
            rpc_nfs3_link_async, args,
            [this](const LINK3res& answer) -> Result<void> {
              if (answer.status == NFS3_OK) return {};
              return check_dir(answer.LINK3res_u.resfail.linkdir_wcc.after, answer.status,
                               "pool: LINK");
            },
            deadline);
      },
      deadline);
}

Result<void> NfsSession::rename(std::string_view from, std::string_view to, Deadline deadline) {
  return at(
      from,
      [&](const Handle& old_directory, std::string& old_name) {
        return at(
            to,
            [&](const Handle& directory, std::string& name) {
              RENAME3args args{};
              args.from.dir = raw(old_directory);
              args.from.name = old_name.data();
              args.to.dir = raw(directory);
              args.to.name = name.data();
              return call<RENAME3res>(
                  rpc_nfs3_rename_async, args,
                  [this](const RENAME3res& answer) -> Result<void> {
                    if (answer.status == NFS3_OK) return {};
                    const RENAME3resfail& refused = answer.RENAME3res_u.resfail;
                    TRY(check_dir(refused.fromdir_wcc.after, answer.status, "pool: RENAME"));
                    return check_dir(refused.todir_wcc.after, answer.status, "pool: RENAME");
                  },
                  deadline);
            },
            deadline);
      },
      deadline);
}

Result<void> NfsSession::remove(std::string_view path, Deadline deadline) {
  return at(
      path,
      [&](const Handle& directory, std::string& name) {
        REMOVE3args args{};
        args.object.dir = raw(directory);
        args.object.name = name.data();
        return call<REMOVE3res>(
            rpc_nfs3_remove_async, args,
            [](const REMOVE3res& answer) { return check(answer.status, "pool: REMOVE"); },
            deadline);
      },
      deadline);
}

Result<std::uint64_t> NfsSession::make_directory(std::string_view path, std::uint32_t mode,
                                                 Deadline deadline) {
  const auto asked = std::chrono::steady_clock::now();
  return at(
      path,
      [&](const Handle& directory, std::string& name) {
        MKDIR3args args{};
        args.where.dir = raw(directory);
        args.where.name = name.data();
        args.attributes = with_mode(mode);
        return call<MKDIR3res>(
            rpc_nfs3_mkdir_async, args,
            [&](const MKDIR3res& answer) -> Result<std::uint64_t> {
              if (answer.status != NFS3_OK)
                TRY(check_dir(answer.MKDIR3res_u.resfail.dir_wcc.after, answer.status,
                              "pool: MKDIR"));
              const MKDIR3resok& made = answer.MKDIR3res_u.resok;
              if (made.obj.handle_follows != 0) {
                const Result<Handle> handle = handle_of(made.obj.post_op_fh3_u.handle);
                if (handle.ok()) directories_->put(root_, path, *handle, asked);
              }
              const std::optional<PoolStatus> status = status_of(made.obj_attributes);
              return status ? status->fileid : 0;
            },
            deadline);
      },
      deadline);
}

Result<void> NfsSession::remove_directory(std::string_view path, Deadline deadline) {
  const Result<void> removed = at(
      path,
      [&](const Handle& directory, std::string& name) {
        RMDIR3args args{};
        args.object.dir = raw(directory);
        args.object.name = name.data();
        return call<RMDIR3res>(
            rpc_nfs3_rmdir_async, args,
            [](const RMDIR3res& answer) { return check(answer.status, "pool: RMDIR"); },
            deadline);
      },
      deadline);
  // A directory that is made anew has another handle.
  if (removed.ok()) directories_->clear();
  return removed;
}

Result<void> NfsSession::list(std::string_view path,
                              const std::function<bool(const PoolEntry&)>& visit,
                              Deadline deadline) {
  TRY(check_pool_path(path));
  bool visited = false;
  const auto noted = [&](const PoolEntry& entry) {
    visited = true;
    return visit(entry);
  };
  return in_directory(
      path, [&](const Handle& directory) { return list_in(directory, noted, deadline); },
      [&] { return !visited; }, deadline);
}

Result<void> NfsSession::list_in(const Handle& directory,
                                 const std::function<bool(const PoolEntry&)>& visit,
                                 Deadline deadline) {
  READDIR3args args{};
  args.dir = raw(directory);
  args.count = kListedAtOnce;
  bool go_on = true;
  while (go_on) {
    const cookie3 before = args.cookie;
    go_on = TRY(call<READDIR3res>(
        rpc_nfs3_readdir_async, args,
        [&](const READDIR3res& answer) -> Result<bool> {
          if (answer.status == NFS3ERR_NOENT) return fail(ESTALE, "pool: READDIR");
          TRY(check(answer.status, "pool: READDIR"));
          const READDIR3resok& listed = answer.READDIR3res_u.resok;
          TRY(check_dir(listed.dir_attributes, answer.status, "pool: READDIR"));
          // libnfs does not align what it allocates for a list.
          entry3 entry{};
          for (const entry3* next = listed.reply.entries; next != nullptr;
               next = entry.nextentry) {
            std::memcpy(&entry, static_cast<const void*>(next), sizeof entry);
            args.cookie = entry.cookie;
            const std::string_view name = entry.name != nullptr ? entry.name : "";
            if (name == "." || name == "..") continue;
            if (!is_pool_name(name)) return fail(EBADMSG, "pool: a listed name is none");
            if (!visit({.name = name, .fileid = entry.fileid})) return false;
          }
          std::copy_n(listed.cookieverf, NFS3_COOKIEVERFSIZE, args.cookieverf);
          return listed.reply.eof == 0;
        },
        deadline));
    if (go_on && args.cookie == before)
      return fail(EBADMSG, "pool: the server's listing does not go on");
  }
  return {};
}

Result<void> NfsSession::list_statuses(
    std::string_view path,
    const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit, Deadline deadline) {
  TRY(check_pool_path(path));
  bool visited = false;
  const auto noted = [&](const PoolEntry& entry, const PoolStatus& status) {
    visited = true;
    return visit(entry, status);
  };
  return in_directory(
      path,
      [&](const Handle& directory) {
        return list_statuses_in(path, directory, noted, deadline);
      },
      [&] { return !visited; }, deadline);
}

Result<void> NfsSession::list_statuses_in(
    std::string_view path, const Handle& directory,
    const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit, Deadline deadline) {
  READDIRPLUS3args args{};
  args.dir = raw(directory);
  args.dircount = kListedAtOnce;
  args.maxcount = kListedAtOnce;
  struct Named {
    std::string name;
    std::uint64_t fileid = 0;
    std::optional<PoolStatus> status;
  };
  bool go_on = true;
  while (go_on) {
    const cookie3 before = args.cookie;
    const auto asked = std::chrono::steady_clock::now();
    std::vector<Named> page;
    go_on = TRY(call<READDIRPLUS3res>(
        rpc_nfs3_readdirplus_async, args,
        [&](const READDIRPLUS3res& answer) -> Result<bool> {
          if (answer.status == NFS3ERR_NOENT) return fail(ESTALE, "pool: READDIRPLUS");
          TRY(check(answer.status, "pool: READDIRPLUS"));
          const READDIRPLUS3resok& listed = answer.READDIRPLUS3res_u.resok;
          TRY(check_dir(listed.dir_attributes, answer.status, "pool: READDIRPLUS"));
          entryplus3 entry{};
          for (const entryplus3* next = listed.reply.entries; next != nullptr;
               next = entry.nextentry) {
            std::memcpy(&entry, static_cast<const void*>(next), sizeof entry);
            args.cookie = entry.cookie;
            const std::string_view name = entry.name != nullptr ? entry.name : "";
            if (name == "." || name == "..") continue;
            if (!is_pool_name(name)) return fail(EBADMSG, "pool: a listed name is none");
            page.push_back({.name = std::string(name),
                            .fileid = entry.fileid,
                            .status = status_of(entry.name_attributes)});
            if (is_of_pool_itself(path) && page.back().status &&
                entry.name_handle.handle_follows != 0 &&
                page.back().status->kind == PoolKind::kDirectory) {
              const auto handle = handle_of(entry.name_handle.post_op_fh3_u.handle);
              if (handle.ok())
                directories_->put(root_, std::string(path) + '/' + std::string(name), *handle,
                                  asked);
            }
          }
          std::copy_n(listed.cookieverf, NFS3_COOKIEVERFSIZE, args.cookieverf);
          return listed.reply.eof == 0;
        },
        deadline));
    for (Named& named : page) {
      if (!named.status) {
        // A server may leave them out, as that of a mount point below it.
        const Result<Found> found = look_up(directory, named.name, deadline);
        if (!found.ok() && (found.error().code == ENOENT || found.error().code == ESTALE))
          continue;
        if (!found.ok()) return found.error();
        named.status = found->status;
      }
      if (!visit({.name = named.name, .fileid = named.fileid}, *named.status)) return {};
    }
    if (go_on && args.cookie == before)
      return fail(EBADMSG, "pool: the server's listing does not go on");
  }
  return {};
}

Result<void> NfsSession::touch(PoolFile& file, Deadline deadline) {
  SETATTR3args args{};
  args.object = raw(of(file).handle());
  args.new_attributes.atime.set_it = SET_TO_SERVER_TIME;
  return call<SETATTR3res>(
      rpc_nfs3_setattr_async, args,
      [](const SETATTR3res& answer) { return check(answer.status, "pool: SETATTR"); },
      deadline);
}

Result<PoolSpace> NfsSession::space(Deadline deadline) {
  FSSTAT3args args{};
  args.fsroot = raw(root_);
  return call<FSSTAT3res>(
      rpc_nfs3_fsstat_async, args,
      [](const FSSTAT3res& answer) -> Result<PoolSpace> {
        TRY(check(answer.status, "pool: FSSTAT"));
        const FSSTAT3resok& space = answer.FSSTAT3res_u.resok;
        return PoolSpace{.total = space.tbytes, .available = space.abytes};
      },
      deadline);
}

}  // namespace

NfsCommon make_nfs_common(std::shared_ptr<PoolGovernor> governor) {
  return {.governor = std::move(governor), .directories = std::make_shared<NfsDirectories>()};
}

Result<std::unique_ptr<PoolSession>> open_nfs_session(const PoolUri& uri, Deadline deadline,
                                                      const NfsCommon& common) {
  auto session = std::make_unique<NfsSession>(
      common.governor != nullptr ? common.governor : std::make_shared<PoolGovernor>());
  TRY(session->open(uri, deadline));
  if (common.directories != nullptr) session->share(common.directories);
  return std::unique_ptr<PoolSession>(std::move(session));
}

}  // namespace kvcachefs

#include "backend/pool/pool_directory.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "backend/base/log.h"
#include "backend/pool/below.h"
#include "backend/pool/pool_transfer.h"

namespace kvcachefs {
namespace {

// Of the name of a temporary that becomes a record.
constexpr const char* kToldSuffix = ".told";

bool is_absent(int code) noexcept {
  return code == ENOENT || code == ENOTDIR || code == EISDIR;
}

// Errors: EILSEQ (it does not read).
Result<std::optional<PoolTold>> read_told(PoolSession& session, std::uint64_t fileid,
                                          Deadline deadline) {
  const Result<PoolFilePtr> file = session.open(pool_told_path(fileid), deadline);
  if (!file.ok() && is_absent(file.error().code)) return std::optional<PoolTold>{};
  // Mounts put files there and nothing else.
  if (!file.ok() && (file.error().code == ELOOP || file.error().code == EBADMSG))
    return fail(EILSEQ, "pool: what a directory was told is no file");
  if (!file.ok()) return file.error();
  std::string text(static_cast<std::size_t>(
                       std::min<std::uint64_t>((*file)->status().size, kPoolTextLimit + 1)),
                   '\0');
  text.resize(TRY(session.read(**file, 0, std::as_writable_bytes(std::span(text)), deadline)));
  if (text.size() > kPoolTextLimit)
    return fail(EILSEQ, "pool: what a directory was told is too long");
  Result<PoolTold> told = decode_pool_told(text);
  if (!told.ok()) return fail(EILSEQ, told.error().what);
  return std::optional<PoolTold>(std::move(told).value());
}

bool is_of(const PoolTold& told, std::uint64_t fileid, std::string_view path) {
  return told.fileid == fileid && told.path_hash == pool_path_hash(path);
}

Result<bool> is_empty_directory(PoolSession& session, const std::string& path,
                                Deadline deadline) {
  bool is_empty = true;
  TRY(session.list(
      path, [&is_empty](const PoolEntry&) { return is_empty = false; }, deadline));
  return is_empty;
}

}  // namespace

Result<std::optional<PoolTold>> find_told(PoolSession& session, std::string_view path,
                                          const PoolStatus& status, Deadline deadline) {
  Result<std::optional<PoolTold>> told = read_told(session, status.fileid, deadline);
  if (!told.ok() && told.error().code == EILSEQ) {
    log_warn("pool: what a directory was told does not read, ignored path=\"{}\" step=\"{}\"",
             path, told.error().what);
    return std::optional<PoolTold>{};
  }
  if (told.ok() && *told && !is_of(**told, status.fileid, path)) told->reset();
  return told;
}

Result<std::optional<PoolTold>> tell_directory(PoolSession& session, const PoolTelling& telling,
                                               const Uuid& node, Deadline deadline) {
  const Result<PoolStatus> status = session.status(telling.path, deadline);
  if (!status.ok() && is_absent(status.error().code)) return std::optional<PoolTold>{};
  if (!status.ok()) return status.error();
  if (status->kind != PoolKind::kDirectory || status->fileid != telling.fileid)
    return std::optional<PoolTold>{};
  const std::optional<PoolTold> standing =
      TRY(find_told(session, telling.path, *status, deadline));
  PoolTold told{.fileid = telling.fileid,
                .path_hash = pool_path_hash(telling.path),
                .words = telling.words};
  if (standing)
    for (const PoolWord& word : standing->words)
      if (told.find(word.key) == nullptr && told.words.size() < kMostPoolWords)
        told.words.push_back(word);
  // An earlier try may have been answered to nobody.
  if (standing && *standing == told) return std::optional(std::move(told));
  const std::string text = encode_pool_told(told);
  const std::string temporary = pool_temporary_path(node, telling.number) + kToldSuffix;
  const std::string path = pool_told_path(telling.fileid);
  const Result<PoolFilePtr> written = below(
      session, temporary,
      [&] { return write_anew(session, temporary, text, PoolWrite::kNow, deadline); },
      deadline);
  const Result<void> put =
      written.ok() ? below(
                         session, path,
                         [&] { return session.rename(temporary, path, deadline); }, deadline)
                   : Result<void>(written.error());
  if (!put.ok()) {
    static_cast<void>(session.remove(temporary, deadline).ok());
    return put.error();
  }
  return std::optional(std::move(told));
}

Result<std::uint64_t> remove_described_directory(PoolSession& session, const std::string& path,
                                                 std::uint64_t fileid, Deadline deadline) {
  const PoolStatus status = TRY(session.status(path, deadline));
  if (status.kind != PoolKind::kDirectory) return fail(ENOTDIR, "pool: no directory");
  if (fileid != 0 && status.fileid != fileid)
    return fail(ESTALE, "pool: another directory stands there");
  if (!TRY(is_empty_directory(session, path, deadline)))
    return fail(ENOTEMPTY, "pool: the directory is not empty");
  // Before the directory: the server gives its number to another one afterwards.
  const auto owner = TRY(find_directory_owner(session, path, status, deadline));
  const auto told = TRY(find_told(session, path, status, deadline));
  const std::string sums_path = pool_sums_path(status.fileid);
  const std::string told_path = pool_told_path(status.fileid);
  if (owner) TRY(remove_if_there(session, sums_path, deadline));
  TRY(remove_if_there(session, told_path, deadline));
  const Result<void> removed = session.remove_directory(path, deadline);
  if (removed.ok()) return status.fileid;
  // Another server has put something into it since it was listed.
  if (removed.error().code == ENOTEMPTY) {
    if (owner)
      TRY(write_anew(session, sums_path, encode_pool_sums(*owner), PoolWrite::kAtCommit,
                     deadline));
    if (told)
      TRY(write_anew(session, told_path, encode_pool_told(*told), PoolWrite::kAtCommit,
                     deadline));
  }
  return removed.error();
}

}  // namespace kvcachefs

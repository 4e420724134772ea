#include "backend/pool/pool_session.h"

#include <algorithm>

namespace kvcachefs {

Result<std::size_t> PoolSession::read(PoolFile& file, std::uint64_t offset,
                                      std::span<std::byte> out, Deadline deadline) {
  const PoolRead read = TRY(read_parts(
      file, offset, out.size(),
      [&](std::uint64_t at, std::span<const std::byte> bytes) -> Result<void> {
        std::copy(bytes.begin(), bytes.end(),
                  out.begin() + static_cast<std::ptrdiff_t>(at - offset));
        return {};
      },
      PoolPace::kPrompt, deadline));
  return static_cast<std::size_t>(read.count);
}

Result<void> PoolSession::write(PoolFile& file, std::uint64_t offset,
                                std::span<const std::byte> bytes, PoolWrite when,
                                Deadline deadline) {
  return write_parts(
      file, offset, bytes.size(),
      [&](std::uint64_t at, std::span<std::byte> out) -> Result<void> {
        const auto part = bytes.subspan(static_cast<std::size_t>(at - offset), out.size());
        std::copy(part.begin(), part.end(), out.begin());
        return {};
      },
      when, deadline);
}

Result<void> PoolSession::find_directory(std::string_view path, Deadline deadline) {
  if (TRY(status(path, deadline)).kind != PoolKind::kDirectory)
    return fail(ENOTDIR, "pool: no directory");
  return {};
}

Result<PoolStatus> PoolSession::store(PoolFile& file, std::uint64_t size, const PoolFill& fill,
                                      Deadline deadline) {
  TRY(write_parts(file, 0, size, fill, PoolWrite::kAtCommit, deadline));
  TRY(commit(file, deadline));
  return status(file, deadline);
}

}  // namespace kvcachefs

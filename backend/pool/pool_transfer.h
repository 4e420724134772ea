// Files on their way to a pool and from it: publication by LINK, so that a name is whole or not there, and loads that
// are compared with their checksums. FORMAT.md says what is written.
//
// The calls block, with a session of the calling thread. Bytes are compared and copied part by part while others are on
// their way.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/random.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_session.h"

namespace kvcachefs {

// A file that is to be published.
struct PoolSource {
  std::string path;  // on the pool
  int fd = -1;       // its bytes; nobody changes them
  std::uint64_t size = 0;
  std::span<const std::uint32_t> chunk_crc32c;  // of each kPoolChunk, as of its seal
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mode = 0;  // permission bits
  bool keep = false;       // it is not to be evicted from the pool
  // A name that does not tell what is in it: what stands there is replaced. Otherwise the first stays.
  bool replaces = false;
  // The number of a file there whose bytes are known to be damaged: it is replaced all the same. 0: nothing is known.
  std::uint64_t damaged = 0;
  // The numbers of earlier tries, which may not have ended yet, and those of files on the pool that one of them may have
  // published though nobody heard of it.
  std::vector<std::uint64_t> earlier_tries = {};
  std::vector<std::uint64_t> earlier_files = {};
};

struct Published {
  // Somebody had published another file there; it stays, and ours is gone again.
  bool is_duplicate = false;
  PoolStatus status;           // of what stands at the path
  std::uint64_t replaced = 0;  // the number of the file that stood there; 0: none did
};

// A directory that was not there before.
struct MadeDirectory {
  std::string path;
  std::uint64_t fileid = 0;  // 0: the server has not said it
};

// A file that is whole on the pool, and has no name of its own yet.
struct Prepared {
  PoolFilePtr file;  // null: an earlier try has published it
  PoolStatus status;
  // Where the name is to be replaced: the number of the file that it stood for then; 0: none.
  std::uint64_t standing = 0;
  std::vector<MadeDirectory> made;  // above it
};

// The two steps of a publication, so that its number can be noted before anybody finds the name. `number` is used for
// this try alone by this node: what is still to come of an earlier one does not touch this one's files, and cannot give
// the name any more when prepare_publication() returns. An earlier try whose answer was lost is recognised.
// Directories of the path are made. Errors: EILSEQ (the bytes are not the sealed ones; nothing was published), EAGAIN
// (the server started anew too often), ENOSPC, EDQUOT, EROFS, EOPNOTSUPP (no hard links), and those of any call.
[[nodiscard]] Result<Prepared> prepare_publication(PoolSession& session,
                                                   const PoolSource& source, const Uuid& node,
                                                   std::uint64_t number, Deadline deadline);
[[nodiscard]] Result<Published> finish_publication(PoolSession& session,
                                                   const PoolSource& source,
                                                   const Prepared& prepared, const Uuid& node,
                                                   std::uint64_t number, Deadline deadline);
// Removes the names of a finished try that nobody looks for, when nobody waits for it any more. What cannot be removed now
// goes with what a node leaves behind.
void clear_publication(PoolSession& session, const Uuid& node, std::uint64_t number,
                       Deadline deadline);
// All three.
[[nodiscard]] Result<Published> publish(PoolSession& session, const PoolSource& source,
                                        const Uuid& node, std::uint64_t number,
                                        Deadline deadline);

// The checksums that stand for this very file. nullopt: there are none, or of a file that had its number before. Errors:
// EILSEQ (damaged: nobody can say whether the file is right), and those of any call.
[[nodiscard]] Result<std::optional<PoolSums>> find_sums(PoolSession& session,
                                                        const PoolStatus& status,
                                                        Deadline deadline);

struct DirectoryOwner {
  std::string path;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mode = 0;    // permission bits
  std::uint64_t number = 0;  // of this try alone, as that of a publication
  std::uint64_t made = 0;    // its number, where this node has just made it; else 0
};
// Says whose a directory is, where nobody has said it, and gives its number. What the server itself says of owners and
// modes is of those who may speak to it.
[[nodiscard]] Result<std::uint64_t> describe_directory(PoolSession& session,
                                                       const DirectoryOwner& owner,
                                                       const Uuid& node, Deadline deadline);
// Whose a file or a directory is from now on, and whether it is kept.
struct PoolOwner {
  std::string path;
  std::uint64_t fileid = 0;
  // What is given; nullopt: as the record says.
  std::optional<std::uint32_t> uid = std::nullopt;
  std::optional<std::uint32_t> gid = std::nullopt;
  std::optional<std::uint32_t> mode = std::nullopt;  // permission bits
  std::optional<bool> keep = std::nullopt;           // of a file: it is not to be evicted
  // Of what has no record.
  std::uint32_t other_uid = 0;
  std::uint32_t other_gid = 0;
  std::uint32_t other_file_mode = 0;
  std::uint32_t other_directory_mode = 0;
  std::uint64_t number = 0;  // of this try alone, as that of a publication
};
// Says it to all nodes, and gives the record as it is then. Where there is no room for another one it is written over, and is
// damaged if that is cut short. nullopt: that file or directory has the path no more, or nobody can read it anyway (its
// record is damaged).
[[nodiscard]] Result<std::optional<PoolSums>> change_owner(PoolSession& session,
                                                           const PoolOwner& owner,
                                                           const Uuid& node, Deadline deadline);
// What was said of this very directory; nullopt: nothing, or what does not read.
[[nodiscard]] Result<std::optional<PoolSums>> find_directory_owner(PoolSession& session,
                                                                   std::string_view path,
                                                                   const PoolStatus& status,
                                                                   Deadline deadline);

// A file that was found, and may be fetched without looking for it again.
struct PoolKnown {
  PoolFilePtr file;  // null: it is to be opened
  PoolStatus status;
  std::optional<PoolSums> sums;
  std::optional<PoolTold> told = std::nullopt;  // of a directory
};
// Errors: EILSEQ (as find_sums()), and those of any call.
[[nodiscard]] Result<PoolKnown> find_known(PoolSession& session, std::string_view path,
                                           Deadline deadline);

struct Fetched {
  PoolFilePtr file;
  PoolStatus status;
  // Of the bytes that were written; equal to those on the pool where it has some.
  std::vector<std::uint32_t> chunk_crc32c;
  std::optional<PoolSums> sums;
};

// Writes the file's bytes to `fd`, an empty file, open for reading, too. `known`: what the caller has found at the path
// not long ago, of the same file. Errors: ENOENT, EISDIR, EILSEQ (the bytes are not those of the checksums, or these are
// damaged), EAGAIN (it was changed meanwhile), those of pread(2) and pwrite(2), and those of any call.
[[nodiscard]] Result<Fetched> fetch(PoolSession& session, std::string_view path,
                                    std::optional<PoolKnown> known, int fd, Deadline deadline,
                                    PoolPace pace = PoolPace::kPrompt);

// A part of a file: writes its bytes to the same place of `fd`, open for reading, too. On this
// thread it calls `came` whenever the pool has sent some of them, before they are written, and
// `arrived` with each chunk and its checksum as soon as it is there. `known.file` is open;
// `offset` is where a chunk begins, and the part ends where one ends. Errors: EILSEQ, EAGAIN (the
// file is shorter by now), those of pread(2) and pwrite(2), and those of any call.
[[nodiscard]] Result<void> fetch_part(
    PoolSession& session, const PoolKnown& known, std::uint64_t offset, std::uint64_t size,
    int fd, const std::function<void()>& came,
    const std::function<void(std::size_t chunk, std::uint32_t sum)>& arrived,
    Deadline deadline);

// A new file of these bytes; what stands at the path, of a try that was cut short, goes. Errors: those of create() and
// write().
[[nodiscard]] Result<PoolFilePtr> write_anew(PoolSession& session, std::string_view path,
                                             std::string_view bytes, PoolWrite when,
                                             Deadline deadline);

// What is gone by then is removed.
[[nodiscard]] Result<void> remove_if_there(PoolSession& session, std::string_view path,
                                           Deadline deadline);

// The directory and all above it. One that is there is success; the others are added to `made`, unless that is null.
[[nodiscard]] Result<void> make_directories(PoolSession& session, std::string_view path,
                                            Deadline deadline,
                                            std::vector<MadeDirectory>* made = nullptr);

}  // namespace kvcachefs

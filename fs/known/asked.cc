// What lookups ask for, and the calls that make what they asked for: for LookupCounts.
#include <optional>

#include "fs/known/block_number.h"
#include "fs/known/knowledge.h"

namespace kvcachefs {
namespace {

// nullopt: a temporary, or a companion.
std::optional<AskedName> asked_name(InodeNumber directory, std::string_view name,
                                    const NameLook& seen) {
  AskedName out{.number = block_number(directory, name),
                .block = 0,
                .series = std::nullopt,
                .tenant = seen.tenant};
  if (seen.is_companion) return std::nullopt;
  if (!seen.block && !seen.fan_out)
    return is_temporary_name(name) ? std::nullopt : std::optional(out);
  const BlockName& block = seen.block ? *seen.block : *seen.fan_out;
  if (block.temporary) return std::nullopt;
  out.series = block.series;
  // Files of one hash are parts of one block, wherever a tenant has them. A part of a hash, as a directory's
  // name, is of many.
  if (seen.block || seen.is_directory_of_block)
    out.block = block.hash.empty()
                    ? out.number
                    : block_number(std::uint64_t{seen.tenant} << 32 | block.series, block.hash);
  return out;
}

}  // namespace

order::Caller Knowledge::asker_of(const AskedName& name, pid_t thread) {
  if (name.block != 0) return processes_.caller(thread, now());
  return {.tid = static_cast<std::uint32_t>(thread)};
}

void Knowledge::found(InodeNumber directory, std::string_view name, const NameLook& seen,
                      pid_t thread) {
  const std::optional<AskedName> asked = asked_name(directory, name, seen);
  if (asked && !is_crawling(thread))
    lookups_.found(*asked, asker_of(*asked, thread), monotonic_now());
}

bool Knowledge::missed(InodeNumber directory, std::string_view name, const NameLook& seen,
                       pid_t thread) {
  const std::optional<AskedName> asked = asked_name(directory, name, seen);
  if (!asked || is_crawling(thread)) return true;
  const bool is_often = lookups_.missed(*asked, asker_of(*asked, thread), monotonic_now());
  // Lookups of many blocks end at one such directory.
  return is_often && (!seen.fan_out || seen.is_directory_of_block);
}

void Knowledge::making_file(InodeNumber directory, std::string_view name, const NameLook& seen,
                            pid_t thread) {
  const std::optional<AskedName> asked = asked_name(directory, name, seen);
  if (!asked) return;
  lookups_.count_unfound(lookups_.made(*asked, asker_of(*asked, thread)).of_file(), *asked);
}

Unfound Knowledge::making_directory(InodeNumber directory, std::string_view name,
                                    const NameLook& seen, pid_t thread) {
  const std::optional<AskedName> asked = asked_name(directory, name, seen);
  return asked ? lookups_.made(*asked, asker_of(*asked, thread)) : Unfound{};
}

void Knowledge::got_file(Inode& directory, std::string_view name, const NameLook& seen) {
  // These do not say what they are for.
  if (seen.is_companion || (!seen.block && is_temporary_name(name))) return;
  const unsigned questions = directory.unfound.exchange({}).in_directory();
  AskedName file{.number = 0, .block = 0, .series = std::nullopt, .tenant = seen.tenant};
  if (seen.block) file.series = seen.block->series;
  if (questions != 0) lookups_.count_unfound(questions, file);
}

void Knowledge::rewritten(const Inode& inode, pid_t thread) {
  const std::uint64_t block = inode.block.load(std::memory_order_relaxed);
  if (block != 0) lookups_.rewritten(block, processes_.caller(thread, now()).process);
}

}  // namespace kvcachefs

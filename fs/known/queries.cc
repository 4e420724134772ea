#include "fs/known/queries.h"

#include <dirent.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "backend/base/clock.h"
#include "fs/layout/layout.h"

namespace kvcachefs {
namespace {

constexpr std::string_view kSessions = "session";

// A record that does not read is one the less; a database that does not read is the end.
template <class T>
Result<std::optional<T>> unless_damaged(Result<std::optional<T>> found,
                                        std::uint64_t& damaged) {
  if (found.ok() || found.error().code != EBADMSG) return found;
  ++damaged;
  return std::optional<T>{};
}

bool passes(const ObjectInfo& info, const ObjectFilter& filter) {
  return (filter.model.empty() || filter.model == info.model) &&
         (filter.runtime.empty() || filter.runtime == info.runtime);
}

}  // namespace

// At least one row goes into a page.
class Queries::Budget {
 public:
  void take(std::size_t bytes) noexcept { bytes_ += bytes; }
  [[nodiscard]] bool is_spent() const noexcept {
    return bytes_ >= kPageBytes || monotonic_now() >= end_;
  }

 private:
  const std::int64_t end_ = monotonic_now() + kPageNanos;
  std::size_t bytes_ = 0;
};

Queries::Queries(Catalog& catalog, OrderSource& order, std::size_t rows)
    : catalog_(catalog),
      order_(order),
      rows_(std::clamp<std::size_t>(rows, 1, kPageRows)),
      describer_(catalog, order) {}

Result<ObjectPage> Queries::objects(std::optional<std::uint64_t> after,
                                    const ObjectFilter& filter) {
  ObjectPage page;
  Budget budget;
  std::vector<std::pair<std::uint64_t, BlockRecord>> rows;
  TRY(catalog_.each_block(
      after,
      [&](std::uint64_t block, const BlockRecord& record) {
        rows.emplace_back(block, record);
        return rows.size() < rows_;
      },
      [&](const std::string&) { ++page.damaged; }));
  if (rows.size() == rows_) page.next = rows.back().first;
  for (const auto& [block, record] : rows) {
    auto info = TRY(unless_damaged(describer_.by_block(block, record), page.damaged));
    if (info && passes(*info, filter)) {
      budget.take(info->bytes());
      page.objects.push_back(std::move(*info));
    }
    if (budget.is_spent() && block != rows.back().first) {
      page.next = block;
      break;
    }
  }
  return page;
}

Result<HashPage> Queries::files_of(std::string_view hash,
                                   const std::optional<PrefixName>& after) {
  HashPage page;
  if (hash.empty() || hash.size() > kLongestHash || hash.find('\0') != hash.npos) return page;
  Budget budget;
  std::vector<PrefixName> rows = TRY(catalog_.list_prefix(hash, after, rows_));
  const bool full = rows.size() == rows_;
  for (PrefixName& row : rows) {
    auto info = TRY(unless_damaged(describer_.by_name(row.parent, row.name), page.damaged));
    if (info && info->hash == hash) {
      budget.take(info->bytes());
      page.objects.push_back(std::move(*info));
    }
    const bool last = &row == &rows.back();
    if ((last && full) || (!last && budget.is_spent())) {
      page.next = std::move(row);
      break;
    }
  }
  return page;
}

Result<HashesPage> Queries::hashes(std::string_view beginning,
                                   const std::optional<std::string>& after) {
  HashesPage page;
  if (beginning.size() < kShortestBeginning || beginning.size() > kLongestHash ||
      beginning.find('\0') != beginning.npos)
    return page;
  // `beginning` itself may be a whole hash; next_prefix() begins behind it.
  std::string at = after.value_or(std::string(beginning));
  bool is_first = !after;
  Budget budget;
  for (std::size_t looked = 0; looked < rows_; ++looked) {
    if (!is_first || TRY(catalog_.list_prefix(at, std::nullopt, 1)).empty()) {
      std::optional<std::string> next = TRY(catalog_.next_prefix(at));
      if (!next || !next->starts_with(beginning)) return page;
      at = std::move(*next);
    }
    is_first = false;
    const HashPage files = TRY(files_of(at, std::nullopt));
    // More than a page of rows, and nothing in it: rather one too many than one missing.
    if (!files.objects.empty() || files.next) {
      budget.take(at.size());
      page.hashes.push_back(at);
    }
    if (budget.is_spent()) break;
  }
  page.next = std::move(at);
  return page;
}

Result<InodeNumber> Queries::directory(InodeNumber parent, std::string_view name) {
  if (name.empty() || name.size() > 255) return InodeNumber{0};
  const std::optional<DentryRecord> dentry = TRY(catalog_.find_dentry(parent, name));
  return dentry && dentry->type == DT_DIR ? dentry->inode : 0;
}

Result<SessionPage> Queries::session(std::string_view id, std::uint64_t after) {
  SessionPage page;
  const InodeNumber top = TRY(directory(kRootInode, kSessions));
  const InodeNumber place = top == 0 ? 0 : TRY(directory(top, id));
  if (place == 0) return page;
  page.found = true;
  Budget budget;
  const std::vector<DirEntry> rows = TRY(catalog_.list_directory(place, after, rows_));
  if (rows.size() == rows_) page.next = rows.back().cookie;
  const std::string above = std::string(kSessions) + '/' + std::string(id) + '/';
  for (const DirEntry& row : rows) {
    if (row.type != DT_REG) continue;
    SessionEntry entry{
        .path = above + row.name, .position = {}, .inode = row.inode, .object = {}};
    const std::optional<Recognized> known = recognize(entry.path);
    if (!known || known->kind != NameKind::kSession) continue;
    entry.position = known->position;
    entry.object = TRY(unless_damaged(describer_.by_inode(row.inode), page.damaged));
    budget.take(entry.path.size() + (entry.object ? entry.object->bytes() : 256));
    page.entries.push_back(std::move(entry));
    if (budget.is_spent() && row.cookie != rows.back().cookie) {
      page.next = row.cookie;
      break;
    }
  }
  return page;
}

Result<SessionsPage> Queries::sessions(std::uint64_t after) {
  SessionsPage page;
  const InodeNumber top = TRY(directory(kRootInode, kSessions));
  if (top == 0) return page;
  const std::vector<DirEntry> rows = TRY(catalog_.list_directory(top, after, rows_));
  if (rows.size() == rows_) page.next = rows.back().cookie;
  for (const DirEntry& row : rows) {
    if (row.type == DT_DIR) page.sessions.push_back(row.name);
  }
  return page;
}

Result<ChainLink> Queries::link(std::uint64_t block) {
  std::uint64_t damaged = 0;
  return ChainLink{.block = block,
                   .object = TRY(unless_damaged(describer_.by_block(block), damaged)),
                   .parent = TRY(unless_damaged(order_.parent(block), damaged))};
}

Result<ChainPage> Queries::chain(std::uint64_t block) {
  ChainPage page;
  Budget budget;
  std::uint64_t at = block;
  while (true) {
    page.links.push_back(TRY(link(at)));
    const ChainLink& found = page.links.back();
    if (!found.parent) return page;
    at = found.parent->name;
    budget.take(found.object ? found.object->bytes() : 64);
    if (page.links.size() >= rows_ || budget.is_spent()) break;
  }
  page.next = at;
  return page;
}

Result<ChildrenPage> Queries::children(std::uint64_t block) {
  ChildrenPage page;
  Budget budget;
  const std::vector<std::uint64_t> blocks = TRY(order_.children(block, rows_ + 1));
  page.partial = order_.is_partial();
  for (const std::uint64_t child : blocks) {
    if (page.links.size() == rows_ || budget.is_spent()) {
      page.more = true;
      break;
    }
    ChainLink found = TRY(link(child));
    budget.take(found.object ? found.object->bytes() : 64);
    page.links.push_back(std::move(found));
  }
  const auto rank = [](const ChainLink& of) {
    return std::tuple(!of.object, of.object ? -of.object->last_use.value_or(0) : 0, of.block);
  };
  std::sort(page.links.begin(), page.links.end(),
            [&](const ChainLink& a, const ChainLink& b) { return rank(a) < rank(b); });
  return page;
}

}  // namespace kvcachefs

#include "fs/synthetic/tree.h"

#include <dirent.h>
#include <sys/stat.h>

#include <ctime>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "fs/known/block_number.h"
#include "fs/names/reach.h"
#include "fs/synthetic/hash_place.h"

namespace kvcachefs {
namespace {

constexpr std::string_view kByPrefixName = "by-prefix";
constexpr std::uint64_t kDot = 1;
constexpr std::uint64_t kDotDot = 2;
constexpr std::uint64_t kFirstCookie = 3;
constexpr std::size_t kLongestLabel = 200;

timespec made_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

std::string label_of(const Recognized& file) {
  std::string label(name_of(file.runtime));
  const auto add = [&label](std::string_view what, std::string_view value) {
    if (!value.empty()) label += "," + std::string(what) + std::string(value);
  };
  const auto add_number = [&](std::string_view what,
                              const std::optional<std::uint32_t>& number) {
    if (number) add(what, std::to_string(*number));
  };
  add("", file.model);
  add_number("r", file.rank);
  add_number("g", file.group);
  add("", file.part);
  for (char& c : label) {
    if (c == '/') c = '_';
  }
  if (label.size() > kLongestLabel) label.resize(kLongestLabel);
  return label;
}

// Whether a name may lead to it that says nothing of whose it is: what somebody else has stored
// under a hash is not what one's own file of that hash is replaced by when it has gone.
bool is_trusted(const FoundBlock& block, std::uint32_t uid) noexcept {
  return block.uid == uid || block.uid == 0;
}

}  // namespace

std::vector<std::string> labels_of(const std::list<FoundBlock>& found, std::uint32_t uid) {
  std::vector<std::string> labels;
  std::unordered_map<std::string, int> copies;  // the last number that a label was given
  std::unordered_set<std::string> taken;
  for (const FoundBlock& block : found) {
    std::string base = label_of(block.file);
    if (!is_trusted(block, uid)) base += ",u" + std::to_string(block.uid);
    std::string label = base;
    // A model may be called as another with a number: that one is passed over once.
    for (int& copy = copies.try_emplace(base, 1).first->second; !taken.insert(label).second;)
      label = base + "~" + std::to_string(++copy);
    labels.push_back(std::move(label));
  }
  return labels;
}

InodeNumber SyntheticTree::number_of(const Node& node) {
  // A hash has no slash, a target begins with dots: two nodes have two texts.
  const std::string text = node.directory ? node.hash : node.hash + "/" + node.target;
  const InodeNumber number = kBit | block_number(0, text) >> 1;
  return number == kTop || number == kByPrefix ? number + 2 : number;
}

InodeNumber SyntheticTree::remember(Node node) {
  InodeNumber number = number_of(node);
  const std::lock_guard lock(mutex_);
  while (true) {
    const auto [at, is_new] = nodes_.try_emplace(number, node);
    if (is_new) {
      at->second.place = by_age_.insert(by_age_.end(), number);
      if (nodes_.size() > kMostNodes) erase(nodes_.find(by_age_.front()));
    }
    if (is_new || at->second == node) {
      ++at->second.lookups;
      return number;
    }
    number = kBit | (number + 1);
  }
}

Result<SyntheticTree::Node> SyntheticTree::node(InodeNumber inode) {
  const std::lock_guard lock(mutex_);
  const auto at = nodes_.find(inode);
  if (at == nodes_.end()) return fail(ESTALE, "a made-up node of an earlier time");
  return at->second;
}

void SyntheticTree::forget(InodeNumber inode, std::uint64_t lookups) {
  const std::lock_guard lock(mutex_);
  const auto at = nodes_.find(inode);
  if (at == nodes_.end()) return;
  at->second.lookups -= std::min(lookups, at->second.lookups);
  if (at->second.lookups == 0) erase(at);
}

void SyntheticTree::erase(Nodes::iterator at) {
  by_age_.erase(at->second.place);
  nodes_.erase(at);
}

Result<struct stat> SyntheticTree::status(InodeNumber inode) {
  // Who may list the root may see what is in it by another name.
  const InodePtr root = TRY(core_.table.get(kRootInode));
  struct stat status {};
  {
    const std::lock_guard lock(root->mutex);
    status.st_mode = S_IFDIR | (root->record.mode & 0555);
    status.st_uid = root->record.uid;
    status.st_gid = root->record.gid;
    status.st_atim = status.st_ctim = to_timespec(root->record.btime);
  }
  // It is made up now; and the kernel reads a directory anew that is younger than what it has read
  // (fs/fuse/readdir.c, fuse_readdir_cached).
  status.st_mtim = made_now();
  status.st_ino = inode;
  status.st_nlink = 2;
  status.st_blksize = 4096;
  if (inode == kTop || inode == kByPrefix) return status;
  const Node it = TRY(node(inode));
  if (it.directory) return status;
  status.st_mode = S_IFLNK | 0777;
  status.st_nlink = 1;
  status.st_size = static_cast<off_t>(it.target.size());
  return status;
}

Result<Entry> SyntheticTree::entry_of(InodeNumber inode) {
  Entry entry;
  entry.inode = inode;
  Result<struct stat> attributes = status(inode);
  if (!attributes.ok()) {
    forget(inode, 1);
    return attributes.error();
  }
  entry.attributes = *attributes;
  return entry;
}

Result<Entry> SyntheticTree::enter() { return entry_of(kTop); }

Result<Entry> SyntheticTree::lookup(InodeNumber parent, std::string_view name,
                                    const Caller& caller) {
  if (name == ".") {
    if (parent == kTop || parent == kByPrefix) return entry_of(parent);
    return entry_of(remember(TRY(node(parent))));
  }
  if (name == "..") return entry_of(parent == kByPrefix ? kTop : kByPrefix);
  if (parent == kTop && name == kByPrefixName) return entry_of(kByPrefix);
  if (parent == kTop) return fail(ENOENT, "no such name");
  if (parent == kByPrefix) {
    if (!is_hash(name)) return fail(ENOENT, "not a hash");
    const auto found = TRY(find(name, 2, caller));
    if (found.empty()) return fail(ENOENT, "no file of this hash");
    const bool is_alone = found.size() == 1 && is_trusted(found.front(), caller.uid);
    Node node{.hash = std::string(name), .directory = !is_alone};
    if (!node.directory) node.target = "../../" + found.front().path;
    return entry_of(remember(std::move(node)));
  }
  const Node directory = TRY(node(parent));
  if (!directory.directory) return fail(ENOTDIR, "not a directory");
  const auto found = TRY(find(directory.hash, kMostFound, caller));
  auto block = found.begin();
  for (const std::string& label : labels_of(found, caller.uid)) {
    if (label == name)
      return entry_of(remember({.hash = directory.hash, .target = "../../../" + block->path}));
    ++block;
  }
  return fail(ENOENT, "no such file of this hash");
}

Result<AttributesReply> SyntheticTree::attributes(InodeNumber inode) {
  AttributesReply reply;
  reply.attributes = TRY(status(inode));
  reply.birth = reply.attributes.st_ctim;
  return reply;
}

Result<std::string> SyntheticTree::read_link(InodeNumber inode) {
  if (inode == kTop || inode == kByPrefix) return fail(EINVAL, "not a symlink");
  const Node it = TRY(node(inode));
  if (it.directory) return fail(EINVAL, "not a symlink");
  return it.target;
}

// What the caller could come to by its path.
Result<std::list<FoundBlock>> SyntheticTree::find(std::string_view hash, std::size_t limit,
                                                  const Caller& caller) {
  Reach reach(core_.catalog, caller);
  return find_blocks(core_.catalog, hash, limit, reach.asker());
}

Result<void> SyntheticTree::list(InodeNumber directory, std::uint64_t after,
                                 const Caller& caller,
                                 const std::function<bool(const ListedEntry&)>& visit) {
  const auto dots = [&](std::uint64_t cookie, const char* name) {
    if (after >= cookie) return true;
    after = cookie;
    return visit({.entry = {.cookie = cookie, .inode = directory, .type = DT_DIR, .name = name},
                  .plus = {}});
  };
  if (!dots(kDot, ".") || !dots(kDotDot, "..")) return {};
  if (directory == kTop) {
    if (after < kFirstCookie) {
      visit({.entry = {.cookie = kFirstCookie,
                       .inode = kByPrefix,
                       .type = DT_DIR,
                       .name = std::string(kByPrefixName)},
             .plus = {}});
    }
    return {};
  }
  if (directory == kByPrefix) return list_hashes(after, caller, visit);
  const Node it = TRY(node(directory));
  if (!it.directory) return fail(ENOTDIR, "not a directory");
  return list_links(it, after, caller, visit);
}

Result<void> SyntheticTree::list_hashes(std::uint64_t after, const Caller& caller,
                                        const std::function<bool(const ListedEntry&)>& visit) {
  const HashPlace listed =
      after >= kFirstCookie ? HashPlace::of_cookie(after - kFirstCookie) : HashPlace{};
  Reach reach(core_.catalog, caller);
  const MayEnter may_enter = reach.asker();
  HashPlace place;
  // Most may be others'.
  std::optional<std::string> next = TRY(core_.catalog.find_prefix(listed.beginning, may_enter));
  while (next) {
    const std::string hash = *std::exchange(next, std::nullopt);
    place.advance(hash);
    if (place.number > HashPlace::kMostAlike) {
      next = TRY(core_.catalog.next_prefix(std::max(hash, place.beginning + HashPlace::kBehind),
                                           may_enter));
      continue;
    }
    next = TRY(core_.catalog.next_prefix(hash, may_enter));
    // A row that no name can have made is damaged.
    if (!is_hash(hash)) continue;
    if (place.beginning == listed.beginning && place.number <= listed.number) continue;
    if (TRY(find_blocks(core_.catalog, hash, 1, may_enter)).empty()) continue;
    // Whether it is a link or a directory is known when somebody looks it up; so is its number.
    if (!visit({.entry = {.cookie = kFirstCookie + place.cookie(),
                          .inode = number_of({.hash = hash}),
                          .type = DT_UNKNOWN,
                          .name = hash},
                .plus = {}}))
      return {};
  }
  return {};
}

Result<void> SyntheticTree::list_links(const Node& directory, std::uint64_t after,
                                       const Caller& caller,
                                       const std::function<bool(const ListedEntry&)>& visit) {
  std::uint64_t cookie = kFirstCookie - 1;
  const auto found = TRY(find(directory.hash, kMostFound, caller));
  auto block = found.begin();
  for (const std::string& label : labels_of(found, caller.uid)) {
    ++cookie;
    const Node link{.hash = directory.hash, .target = "../../../" + block->path};
    ++block;
    if (cookie <= after) continue;
    if (!visit({.entry =
                    {.cookie = cookie, .inode = number_of(link), .type = DT_LNK, .name = label},
                .plus = {}}))
      return {};
  }
  return {};
}

}  // namespace kvcachefs

// Requests of the control socket: any line gives a request within its bounds that reads the
// same when it is written again, or an error that says what is wrong. Any request is answered
// by a line of JSON, or refused.
#include "fs/control_request.h"

#include <dirent.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "fs/control_queries.h"
#include "fs/known/block_number.h"
#include "metadata/memory_store.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

using nlohmann::json;

constexpr InodeNumber kPrefix = 2;
constexpr InodeNumber kSession = 3;
constexpr InodeNumber kChat = 4;
constexpr InodeNumber kFirstFile = 5;
constexpr int kFiles = 3;

void put_name(Edit& edit, InodeNumber parent, std::string_view name, InodeNumber inode,
              std::uint8_t type, std::uint64_t cookie) {
  edit.put_dentry(parent, name, {.inode = inode, .type = type, .cookie = cookie});
}

// prefix/ with a chain of three blocks, and session/chat/ with two of them.
std::unique_ptr<Catalog> make_catalog() {
  auto made = Catalog::create(std::make_unique<MemoryStore>());
  require(made.ok());
  std::unique_ptr<Catalog> catalog = std::move(made).value();
  Edit edit;
  InodeRecord directory;
  directory.mode = S_IFDIR | 0755;
  directory.nlink = 2;
  for (InodeNumber number = kRootInode; number <= kChat; ++number)
    edit.put_inode(number, directory);
  put_name(edit, kRootInode, "prefix", kPrefix, DT_DIR, 20);
  put_name(edit, kRootInode, "session", kSession, DT_DIR, 21);
  put_name(edit, kSession, "chat", kChat, DT_DIR, 22);
  std::uint64_t parent = 0;
  for (int i = 0; i < kFiles; ++i) {
    const InodeNumber number = kFirstFile + static_cast<InodeNumber>(i);
    const std::string hash(16, static_cast<char>('a' + i));
    InodeRecord file;
    file.mode = S_IFREG | 0644;
    file.nlink = 1;
    file.state = DataState::kPublished;
    file.stamp.size = 4096;
    edit.put_inode(number, file);
    put_name(edit, kPrefix, hash, number, DT_REG, 30 + static_cast<std::uint64_t>(i));
    if (i < 2)
      put_name(edit, kChat, std::to_string(i), number, DT_REG,
               40 + static_cast<std::uint64_t>(i));
    const std::uint64_t block = block_number(kPrefix, hash);
    edit.put_block(block,
                   {.inode = number, .has_parent = i > 0, .parent = parent, .hash = hash});
    edit.put_prefix(hash, kPrefix, hash);
    parent = block;
  }
  require(catalog->commit(std::move(edit)).ok());
  return catalog;
}

// Where an answer says how to go on, the next page answers, too.
void answer(ControlRequest request) {
  static const std::unique_ptr<Catalog> catalog = make_catalog();
  for (int pages = 0; pages < 3; ++pages) {
    RecordedOrder order(*catalog);
    const Result<std::string> line = answer_query(*catalog, order, request);
    if (!line.ok()) {
      require(pages == 0 && (line.error().code == EINVAL || line.error().code == ENOSYS));
      return;
    }
    require(line->find('\n') == std::string::npos);
    const json page = json::parse(*line, nullptr, /*allow_exceptions=*/false);
    require(page.is_object());
    if (!page.contains("next")) return;
    request.after = page["next"].get<std::string>();
  }
}

}  // namespace

bool control_request(std::string_view input) {
  std::string problem;
  const auto request = parse_control_request(input, problem);
  if (!request.ok()) {
    require(!problem.empty());
    return false;
  }
  require(!request->command.empty());
  for (const std::string* text :
       {&request->command, &request->word, &request->after, &request->model, &request->runtime})
    require(text->size() <= kLongestRequestText);
  require(request->path.size() <= kLongestRequestPath);
  const std::string written = encode(*request);
  require(written.find('\n') == std::string::npos);
  const auto again = parse_control_request(written, problem);
  require(again.ok() && *again == *request);
  answer(*request);
  return true;
}

}  // namespace kvcachefs::fuzz

// Names come from any user: recognising one never crashes, what it tells is in the name, and a
// temporary is the block that it will be.
//
// The first byte chooses what the directory was told, the rest is the path.
#include "fs/layout/layout.h"

#include <optional>
#include <string>
#include <string_view>

#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

void require_inside(std::string_view view, std::string_view path) {
  require(view.empty() || (view.data() >= path.data() &&
                           view.data() + view.size() <= path.data() + path.size()));
}

bool same_block(const Recognized& one, const Recognized& other) {
  return one.runtime == other.runtime && one.kind == other.kind && one.policy == other.policy &&
         one.immutable == other.immutable && one.model == other.model &&
         one.prefix_hash == other.prefix_hash && one.part == other.part &&
         one.world == other.world && one.rank == other.rank && one.group == other.group &&
         one.session == other.session && one.position == other.position;
}

void check_recognized(std::string_view path, const Recognized& file,
                      std::optional<Runtime> told) {
  for (const std::string_view view :
       {file.model, file.prefix_hash, file.part, file.session, file.final_stem})
    require_inside(view, path);
  require(file.runtime != Runtime::kNone && (!told || file.runtime == *told));
  std::string_view hash = file.prefix_hash;
  if (hash.starts_with('-')) hash.remove_prefix(1);
  require(hash.size() <= 128 && (hash.empty() == file.prefix_hash.empty()));
  require(hash.find_first_not_of("0123456789abcdef") == std::string_view::npos);
  require(parse_runtime(name_of(file.runtime)) == file.runtime);

  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  require(told || may_be_recognized(name));

  require(file.temporary || file.final_stem.empty());
  const std::string final_name = final_path(file);
  if (final_name.empty()) return;
  const auto finished = recognize(final_name, told);
  require(finished && same_block(file, *finished));
}

}  // namespace

bool layout(std::string_view input) {
  const auto [reader, unused, path] = choose(input, 1 + kRuntimeCount);
  std::optional<Runtime> told;
  if (reader > 0) told = static_cast<Runtime>(reader - 1);
  const auto file = recognize(path, told);
  if (file) check_recognized(path, *file, told);
  return file.has_value();
}

}  // namespace kvcachefs::fuzz

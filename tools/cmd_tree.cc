// kvcachefs tree [--depth N] [--limit N] [--json] HASH|SESSION MOUNTPOINT|--state DIR
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/find_word.h"
#include "tools/query_source.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

// A chain that is longer, or goes round, ends here.
constexpr std::size_t kMostAncestors = 100'000;
// Files of one hash, each with a tree of its own: models, ranks, groups.
constexpr std::size_t kMostTrees = 16;

struct TreeArguments {
  std::string word;
  QueryPlace place;
  std::uint32_t depth = 64;
  std::uint32_t limit = 256;
  bool json = false;
};

// One tree: the chain from the root to a block, and what follows the block.
class Tree {
 public:
  Tree(QuerySource& source, const TreeArguments& arguments, std::string& problem)
      : source_(source), arguments_(arguments), problem_(problem) {}

  Result<void> show(const json& object) {
    if (!arguments_.json) print_out("{}\n", series_text(object));
    TRY(show_chain(text_in(object, "block")));
    return show_descendants(text_in(object, "block"));
  }

 private:
  struct Pending {
    json link;
    std::uint32_t depth;
    std::size_t indent;
  };

  Result<json> ask(const char* command, const std::string& block) {
    ControlRequest request;
    request.command = command;
    request.block = parse_block(block);
    return source_.ask(request, problem_);
  }

  // The nearest ancestors, at most `limit`, and how many more there are.
  Result<void> show_chain(std::string block) {
    std::vector<json> links;  // the block itself first
    std::size_t more = 0;
    bool goes_on = true;
    while (goes_on) {
      const json page = TRY(ask("chain", block));
      for (const json& link : part_of(page, "links")) {
        // A chain that comes back to itself ends there.
        goes_on = seen_.size() < kMostAncestors && seen_.insert(text_in(link, "block")).second;
        if (!goes_on) break;
        if (links.size() <= arguments_.limit) {
          links.push_back(link);
        } else {
          ++more;
        }
      }
      block = text_in(page, "next");
      goes_on = goes_on && !block.empty();
    }
    if (more > 0) {
      show_more("ancestor", more, seen_.size() == kMostAncestors, 0,
                -static_cast<std::int64_t>(links.size()));
    }
    for (std::size_t at = links.size(); at-- > 0;) {
      show_link(at == 0 ? "block" : "ancestor", links[at], 0, -static_cast<std::int64_t>(at));
    }
    return {};
  }

  // An only child stands below its parent; where the chain branches, the branches are indented.
  Result<void> show_descendants(const std::string& block) {
    std::vector<Pending> pending;
    TRY(add_children(block, 1, 0, pending));
    std::uint32_t shown = 0;
    while (!pending.empty() && shown < arguments_.limit) {
      const Pending next = std::move(pending.back());
      pending.pop_back();
      const std::string number = text_in(next.link, "block");
      if (!seen_.insert(number).second) continue;
      show_link("descendant", next.link, next.indent, next.depth);
      ++shown;
      TRY(add_children(number, next.depth + 1, next.indent, pending));
    }
    if (!pending.empty()) {
      show_more("descendant", pending.size(), /*at_least=*/true, pending.back().indent,
                pending.back().depth);
    }
    if (partial_)
      complain("tree: too many blocks to know all that follow: ask the mount instead");
    return {};
  }

  Result<void> add_children(const std::string& block, std::uint32_t depth, std::size_t indent,
                            std::vector<Pending>& pending) {
    const json page = TRY(ask("children", block));
    partial_ = partial_ || is_true(page, "partial");
    const json& links = part_of(page, "links");
    const bool branches = links.size() > 1;
    if (depth > arguments_.depth) {
      if (!links.empty()) {
        show_more("descendant", links.size(), /*at_least=*/true, indent + (branches ? 1 : 0),
                  depth);
      }
      return {};
    }
    if (is_true(page, "more")) show_more("descendant", 1, /*at_least=*/true, indent + 1, depth);
    // The first of them is taken next.
    for (std::size_t at = links.size(); at-- > 0;)
      pending.push_back(
          {.link = links[at], .depth = depth, .indent = indent + (branches ? 1 : 0)});
    return {};
  }

  void show_link(const char* role, json link, std::size_t indent, std::int64_t depth) const {
    if (arguments_.json) {
      link["role"] = role;
      link["depth"] = depth;
      print_out("{}\n", line_of(link));
      return;
    }
    const json& object = part_of(link, "object");
    const bool is_file = object.is_object();
    const std::string_view order = text_in(link, "parent").empty() ? "first"
                                   : is_true(link, "firm")         ? "firm"
                                                                   : "guessed";
    print_out("{}{:{}}{:<18}  {:>10}  {:>7}  {}\n", depth == 0 ? "> " : "  ", "", indent * 2,
              short_hash(object, text_in(link, "block")),
              is_file ? format_size(count_in(object, "size")) : "no file",
              is_file ? ago(number_in(object, "created")) : "-", order);
  }

  void show_more(const char* role, std::size_t count, bool at_least, std::size_t indent,
                 std::int64_t depth) const {
    if (arguments_.json) {
      print_out(
          "{}\n",
          line_of({{"role", role}, {"depth", depth}, {"more", count}, {"at_least", at_least}}));
      return;
    }
    print_out("  {:{}}… {}{} more\n", "", indent * 2, count, at_least ? " or" : "");
  }

  QuerySource& source_;
  const TreeArguments& arguments_;
  std::string& problem_;
  std::unordered_set<std::string> seen_;
  bool partial_ = false;
};

// The object at the last position of a session; null: none of its entries is a block.
Result<json> last_of(QuerySource& source, const std::string& session, std::string& problem) {
  ControlRequest request;
  request.command = "session";
  request.word = session;
  json last;
  std::uint64_t position = 0;
  std::uint64_t damaged = 0;
  TRY(each_in(
      source, request, "entries",
      [&](const json& entry) {
        const json& object = part_of(entry, "object");
        if (!object.is_object() || count_in(entry, "position") < position) return true;
        position = count_in(entry, "position");
        last = object;
        return true;
      },
      damaged, problem));
  return last;
}

Result<void> show_trees(QuerySource& source, const TreeArguments& arguments,
                        const FoundWord& found, std::string& problem) {
  if (found.kind == FoundWord::Kind::kSession) {
    const json last = TRY(last_of(source, found.word, problem));
    if (!last.is_object()) {
      problem = fmt::format("{}: no entry of this session is a block", visible(found.word));
      return fail(ENOENT, "empty session");
    }
    return Tree(source, arguments, problem).show(last);
  }
  ControlRequest request;
  request.command = "find";
  request.word = found.word;
  std::vector<json> objects;
  std::uint64_t damaged = 0;
  TRY(each_in(
      source, request, "objects",
      [&](const json& object) {
        objects.push_back(object);
        return objects.size() <= kMostTrees;
      },
      damaged, problem));
  const bool more = objects.size() > kMostTrees;
  if (more) objects.pop_back();
  for (const json& object : objects) TRY(Tree(source, arguments, problem).show(object));
  if (more) {
    complain(
        fmt::format("tree: more than {} files hold this hash: see kvcachefs find", kMostTrees));
  }
  return {};
}

int tree(const TreeArguments& arguments) {
  return run_with_word("tree", arguments.place, arguments.word,
                       [&](QuerySource& source, const FoundWord& found, std::string& problem) {
                         return show_trees(source, arguments, found, problem);
                       });
}

}  // namespace

void add_tree(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<TreeArguments>();
  CLI::App* command = app.add_subcommand(
      "tree", "Shows the blocks before and after one, as far as the mount knows the order");
  command
      ->add_option("HASH|SESSION", arguments->word,
                   wrap_help("A prefix hash, its beginning (8 digits or more), or the name of "
                             "a session: its last entry is taken"))
      ->required()
      ->type_name("");
  add_place(*command, arguments->place);
  command->add_option("--depth", arguments->depth, "How many levels after it (default: 64)")
      ->type_name("N")
      ->check(CLI::Range(0, 100'000));
  command
      ->add_option("--limit", arguments->limit,
                   "How many blocks before it, and after it (default: 256)")
      ->type_name("N")
      ->check(CLI::Range(0, 100'000));
  command->add_flag("--json", arguments->json, "One line of JSON for each block");
  command->callback([arguments, &exit_code] { exit_code = tree(*arguments); });
}

}  // namespace kvcachefs

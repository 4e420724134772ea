#include "fs/control_queries.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <utility>

#include "fs/control_json.h"
#include "fs/known/queries.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

json objects_json(const std::vector<ObjectInfo>& objects) {
  json out = json::array();
  for (const ObjectInfo& info : objects) out.push_back(object_json(info));
  return out;
}

json links_json(const std::vector<ChainLink>& links) {
  json out = json::array();
  for (const ChainLink& link : links) {
    out.push_back({{"block", block_text(link.block)},
                   {"object", link.object ? object_json(*link.object) : json()},
                   {"parent", link.parent ? json(block_text(link.parent->name)) : json()},
                   {"firm", link.parent && link.parent->firm}});
  }
  return out;
}

// ---- where a page begins: as text, so that it means nothing to who hands it back

std::string name_cursor(const PrefixName& at) {
  std::string text = block_text(at.parent);
  for (const char byte : at.name)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::optional<PrefixName> parse_name_cursor(std::string_view text, std::string_view hash) {
  const auto parent = parse_block(text.substr(0, 16));
  if (!parent || text.size() <= 16 || text.size() % 2 != 0) return std::nullopt;
  PrefixName at{.hash = std::string(hash), .parent = *parent, .name = {}};
  for (text.remove_prefix(16); !text.empty(); text.remove_prefix(2)) {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + 2, byte, 16);
    if (error != std::errc{} || end != text.data() + 2) return std::nullopt;
    at.name += static_cast<char>(byte);
  }
  return at;
}

// The cursor of the other listings is a number.
Result<std::optional<std::uint64_t>> number_cursor(const ControlRequest& request) {
  if (request.after.empty()) return std::optional<std::uint64_t>{};
  const auto after = parse_block(request.after);
  if (!after) return fail(EINVAL, "\"after\" is none of our \"next\"");
  return after;
}

void put_next(json& out, const std::optional<std::uint64_t>& next) {
  if (next) out["next"] = block_text(*next);
}

void put_damaged(json& out, std::uint64_t damaged) {
  if (damaged > 0) out["damaged"] = damaged;
}

// ---- one function a command

Result<json> objects(Queries& queries, const ControlRequest& request) {
  const auto after = TRY(number_cursor(request));
  const ObjectPage page =
      TRY(queries.objects(after, {.model = request.model, .runtime = request.runtime}));
  json out = {{"objects", objects_json(page.objects)}};
  put_next(out, page.next);
  put_damaged(out, page.damaged);
  return out;
}

Result<json> find(Queries& queries, const ControlRequest& request) {
  std::optional<PrefixName> after;
  if (!request.after.empty()) {
    after = parse_name_cursor(request.after, request.word);
    if (!after) return fail(EINVAL, "\"after\" is none of our \"next\"");
  }
  const HashPage page = TRY(queries.files_of(request.word, after));
  json out = {{"objects", objects_json(page.objects)}};
  if (page.next) out["next"] = name_cursor(*page.next);
  put_damaged(out, page.damaged);
  return out;
}

Result<json> hashes(Queries& queries, const ControlRequest& request) {
  std::optional<std::string> after;
  if (!request.after.empty()) {
    if (request.after.size() > kLongestHash || !request.after.starts_with(request.word))
      return fail(EINVAL, "\"after\" is none of our \"next\"");
    after = request.after;
  }
  const HashesPage page = TRY(queries.hashes(request.word, after));
  json out = {{"hashes", page.hashes}};
  if (page.next) out["next"] = *page.next;
  return out;
}

Result<json> session(Queries& queries, const ControlRequest& request) {
  const auto after = TRY(number_cursor(request));
  const SessionPage page = TRY(queries.session(request.word, after.value_or(0)));
  json entries = json::array();
  for (const SessionEntry& entry : page.entries) {
    entries.push_back({{"position", or_null(entry.position)},
                       {"path", entry.path},
                       {"inode", entry.inode},
                       {"object", entry.object ? object_json(*entry.object) : json()}});
  }
  json out = {{"found", page.found}, {"entries", std::move(entries)}};
  put_next(out, page.next);
  put_damaged(out, page.damaged);
  return out;
}

Result<json> sessions(Queries& queries, const ControlRequest& request) {
  const auto after = TRY(number_cursor(request));
  const SessionsPage page = TRY(queries.sessions(after.value_or(0)));
  json out = {{"sessions", page.sessions}};
  put_next(out, page.next);
  return out;
}

Result<json> chain(Queries& queries, const ControlRequest& request) {
  if (!request.block) return fail(EINVAL, "\"block\" is missing");
  const ChainPage page = TRY(queries.chain(*request.block));
  json out = {{"links", links_json(page.links)}};
  put_next(out, page.next);
  return out;
}

Result<json> children(Queries& queries, const ControlRequest& request) {
  if (!request.block) return fail(EINVAL, "\"block\" is missing");
  const ChildrenPage page = TRY(queries.children(*request.block));
  return json{
      {"links", links_json(page.links)}, {"more", page.more}, {"partial", page.partial}};
}

struct Command {
  std::string_view name;
  Result<json> (*run)(Queries&, const ControlRequest&);
};
constexpr Command kCommands[] = {
    {"objects", objects},   {"find", find},   {"hashes", hashes},    {"session", session},
    {"sessions", sessions}, {"chain", chain}, {"children", children}};

}  // namespace

Result<std::string> answer_query(Catalog& catalog, OrderSource& order,
                                 const ControlRequest& request) {
  for (const Command& command : kCommands) {
    if (command.name != request.command) continue;
    Queries queries(catalog, order);
    const json answer = TRY(command.run(queries, request));
    return line_of_json(answer);
  }
  return fail(ENOSYS, "no such command");
}

}  // namespace kvcachefs

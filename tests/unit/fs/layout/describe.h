// What recognize() found, as one line of text that a test can spell out.
#pragma once

#include <string>

#include "fs/layout/layout.h"

namespace kvcachefs::testing {

// A SHA-256 sum, as block hashes are; "H" in descriptions.
inline const std::string kHash =
    "9c41d2a0b3f4e5968778695a4b3c2d1e0f9e8d7c6b5a49382716050403020100";

inline std::string replace_all(std::string text, const std::string& what,
                               const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

// "vllm block cache immutable model=m hash=H rank=0": what is not told is not there. A temporary
// ends with "-> final path" or "-> ?".
inline std::string describe(const std::optional<Recognized>& found) {
  if (!found) return "plain";
  static constexpr const char* kKinds[] = {"block",     "companion", "fan-out",
                                           "directory", "pool",      "session"};
  const Recognized& file = *found;
  std::string text(name_of(file.runtime));
  text += std::string(" ") + kKinds[static_cast<int>(file.kind)];
  text += std::string(" ") + std::string(name_of(file.policy));
  if (file.immutable) text += " immutable";
  const auto add = [&text](const char* name, const std::string& value) {
    text += std::string(" ") + name + "=" + value;
  };
  if (!file.model.empty()) add("model", std::string(file.model));
  if (!file.prefix_hash.empty()) add("hash", std::string(file.prefix_hash));
  if (!file.part.empty()) add("part", std::string(file.part));
  if (file.world) add("world", std::to_string(*file.world));
  if (file.rank) add("rank", std::to_string(*file.rank));
  if (file.group) add("group", std::to_string(*file.group));
  if (!file.session.empty()) add("session", std::string(file.session));
  if (file.position) add("position", std::to_string(*file.position));
  if (file.temporary) {
    const std::string to = final_path(file);
    text += " -> " + (to.empty() ? "?" : to);
  }
  return replace_all(text, kHash, "H");
}

// In `path`, "H" is the hash, and so in the description.
inline std::string described(const std::string& path,
                             std::optional<Runtime> told = std::nullopt) {
  const std::string full = replace_all(path, "H", kHash);
  return describe(recognize(full, told));
}

}  // namespace kvcachefs::testing

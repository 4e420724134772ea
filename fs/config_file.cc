// The TOML file of --config: the same names as on the command line.
#define TOML_ENABLE_FORMATTERS 0
#include <fmt/format.h>
// The library's own assertions end the process on some malformed texts that it refuses by an error otherwise.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>
#include <string>
#include <utility>

#include "fs/config.h"

namespace kvcachefs {
namespace {

class FileReader {
 public:
  FileReader(const std::string& file, KernelOptions& kernel, std::vector<Assignment>& out,
             std::string& problem)
      : file_(file), kernel_(kernel), out_(out), problem_(problem) {}

  Result<void> read(const toml::table& table) {
    // What stands by itself wins over what stands in a list.
    if (const toml::node* options = table.get("options")) TRY(read_options(*options));
    for (const auto& [key, node] : table) TRY(read_entry(std::string(key.str()), node));
    return {};
  }

 private:
  Error refuse(const toml::node& node, std::string_view key, std::string_view text) {
    problem_ = fmt::format("{}: line {}: {}: {}", file_, node.source().begin.line, key, text);
    return fail(EINVAL, "configuration file");
  }

  Result<void> read_entry(std::string key, const toml::node& node) {
    std::replace(key.begin(), key.end(), '_', '-');
    if (key == "options") return {};
    const Setting* setting = find_setting(key);
    if (setting == nullptr || !setting->in_file) {
      return refuse(node, key, "no such setting: see kvcachefs mount --help");
    }
    if (setting->kind == SettingKind::kList) {
      return each_string(node, key, [&](const std::string& value) -> Result<void> {
        out_.push_back({key, value});
        return {};
      });
    }
    std::string value;
    TRY(scalar(node, *setting, value));
    out_.push_back({std::move(key), std::move(value)});
    return {};
  }

  Result<void> read_options(const toml::node& node) {
    return each_string(node, "options", [&](const std::string& list) -> Result<void> {
      std::string text;
      std::vector<Assignment> settings;
      const auto parsed = parse_mount_options(list, kernel_, settings, text);
      if (!parsed) return refuse(node, "options", text);
      for (Assignment& setting : settings) {
        if (setting.name == "config")
          return refuse(node, "options", "config: a file names no other");
        out_.push_back(std::move(setting));
      }
      return {};
    });
  }

  template <class Visit>
  Result<void> each_string(const toml::node& node, std::string_view key, Visit visit) {
    if (const auto* text = node.as_string()) return visit(text->get());
    const toml::array* array = node.as_array();
    if (array == nullptr) return refuse(node, key, "write a string or an array of strings");
    for (const toml::node& element : *array) {
      const auto* text = element.as_string();
      if (text == nullptr) return refuse(element, key, "write a string or an array of strings");
      TRY(visit(text->get()));
    }
    return {};
  }

  Result<void> scalar(const toml::node& node, const Setting& setting, std::string& out) {
    if (setting.kind == SettingKind::kFlag) {
      const auto* flag = node.as_boolean();
      if (flag == nullptr) return refuse(node, setting.name, "write true or false");
      out = flag->get() ? "true" : "false";
      return {};
    }
    if (const auto* text = node.as_string()) {
      out = text->get();
    } else if (const auto* number = node.as_integer()) {
      out = std::to_string(number->get());
    } else {
      return refuse(
          node, setting.name,
          fmt::format("write a string: {} = \"{}\"", setting.name, setting.value_name));
    }
    return {};
  }

  const std::string& file_;
  KernelOptions& kernel_;
  std::vector<Assignment>& out_;
  std::string& problem_;
};

// toml++ runs into undefined behaviour on some texts outside ASCII. Strings can say every character by its number.
bool is_plain(char c) { return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0x7f); }

}  // namespace

Result<void> parse_config_file(std::string_view text, const std::string& file,
                               KernelOptions& kernel, std::vector<Assignment>& out,
                               std::string& problem) {
  if (const auto at = std::find_if_not(text.begin(), text.end(), is_plain); at != text.end()) {
    problem = fmt::format(
        "{}: line {}: not a character of ASCII: write it in a string as \\u and four hex "
        "digits, or take it out of a comment",
        file, 1 + std::count(text.begin(), at, '\n'));
    return fail(EINVAL, "configuration file");
  }
  try {
    return FileReader{file, kernel, out, problem}.read(toml::parse(text, file));
  } catch (const toml::parse_error& error) {
    problem = fmt::format("{}: line {}: {}: correct the file", file, error.source().begin.line,
                          error.description());
    return fail(EINVAL, "configuration file");
  }
}

}  // namespace kvcachefs

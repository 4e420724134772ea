#include "backend/pool/pool_uri.h"

#include <charconv>

#include "backend/pool/pool_path.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kLongestHost = 253;  // of a DNS name, RFC 1035

bool take_prefix(std::string_view& text, std::string_view prefix) noexcept {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

template <class Number>
Result<Number> option_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty())
    return fail(EINVAL, "the value of an option is no number that it can have");
  return number;
}

Result<std::string> decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned char byte = 0;
    const char* from = text.data() + i + 1;
    if (text.size() - i < 3) return fail(EINVAL, "'%' without two hexadecimal digits");
    const auto [end, error] = std::from_chars(from, from + 2, byte, 16);
    if (error != std::errc{} || end != from + 2)
      return fail(EINVAL, "'%' without two hexadecimal digits");
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

// Without slashes at its end or twice in a row; each component is one.
Result<std::string> absolute_path(std::string_view text) {
  const std::string decoded = TRY(decode(text));
  if (decoded.empty() || decoded.front() != '/')
    return fail(EINVAL, "the path has to begin with '/'");
  std::string path;
  std::string_view left = decoded;
  while (!left.empty()) {
    left.remove_prefix(1);
    const std::string_view name = left.substr(0, left.find('/'));
    left.remove_prefix(name.size());
    if (name.empty()) continue;
    if (!is_pool_name(name))
      return fail(EINVAL, "a part of the path is '.', '..', too long or holds a NUL");
    path += '/';
    path += name;
  }
  if (path.size() > kLongestPoolPath) return fail(EINVAL, "the path is too long");
  return path.empty() ? "/" : path;
}

Result<void> take_option(PoolUri& uri, std::string_view option) {
  const std::size_t equals = option.find('=');
  const std::string_view name = option.substr(0, equals);
  const std::string_view value =
      equals == option.npos ? std::string_view{} : option.substr(equals + 1);
  if (name == "nfsport" || name == "mountport") {
    const auto port = TRY(option_number<std::uint16_t>(value));
    if (port == 0) return fail(EINVAL, "a port is 1 to 65535");
    (name == "nfsport" ? uri.nfs_port : uri.mount_port) = port;
  } else if (name == "uid") {
    uri.uid = TRY(option_number<std::uint32_t>(value));
  } else if (name == "gid") {
    uri.gid = TRY(option_number<std::uint32_t>(value));
  } else if (name == "version") {
    if (value != "3") return fail(EINVAL, "of NFS only version=3 is spoken");
  } else {
    return fail(EINVAL, "an option is none of nfsport, mountport, uid, gid, version");
  }
  return {};
}

Result<std::string> take_host(std::string_view& text) {
  std::string_view host;
  if (take_prefix(text, "[")) {
    const std::size_t end = text.find(']');
    if (end == text.npos) return fail(EINVAL, "'[' without ']' in the host");
    host = text.substr(0, end);
    text.remove_prefix(end + 1);
  } else {
    host = text.substr(0, text.find_first_of("/?"));
    text.remove_prefix(host.size());
    if (host.find(':') != host.npos)
      return fail(EINVAL, "a port is given as ?nfsport=N, an IPv6 address as [ADDRESS]");
  }
  const bool is_host = !host.empty() && host.size() <= kLongestHost &&
                       host.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789.-_:%") == host.npos;
  if (!is_host) return fail(EINVAL, "the host is missing or no host name");
  return std::string(host);
}

}  // namespace

Result<PoolUri> parse_pool_uri(std::string_view text) {
  PoolUri uri;
  if (take_prefix(text, "dir://")) {
    uri.path = TRY(absolute_path(text));
    return uri;
  }
  if (!take_prefix(text, "nfs://"))
    return fail(EINVAL, "a pool is nfs://HOST/EXPORT or dir:///DIRECTORY");
  uri.kind = PoolUri::Kind::kNfs;
  uri.host = TRY(take_host(text));
  const std::size_t question = text.find('?');
  uri.path = TRY(absolute_path(text.substr(0, question)));
  if (question == text.npos) return uri;
  std::string_view options = text.substr(question + 1);
  while (true) {
    const std::size_t end = options.find('&');
    TRY(take_option(uri, options.substr(0, end)));
    if (end == options.npos) return uri;
    options.remove_prefix(end + 1);
  }
}

}  // namespace kvcachefs

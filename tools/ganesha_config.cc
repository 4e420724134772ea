#include "tools/ganesha_config.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "backend/base/crc32c.h"
#include "fs/refuse.h"

namespace kvcachefs {
namespace {

// Seconds that a client may keep attributes: well below a lease, and new blocks are asked for each time.
constexpr int kAttributeSeconds = 5;

bool can_be_quoted(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '"' && c != '\\' && c != '\x7f';
  });
}

bool is_client(std::string_view text) {
  constexpr std::string_view kAllowed = ".:/*@_-";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kAllowed.find(c) != std::string_view::npos;
  });
}

bool is_address(const std::string& text) {
  in6_addr parsed{};
  return ::inet_pton(AF_INET, text.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &parsed) == 1;
}

Result<void> check(const GaneshaExport& what, std::string& problem) {
  if (what.path.empty() || what.path.front() != '/' || !can_be_quoted(what.path))
    return refuse(problem,
                  "export: the mount point has a character that the server's "
                  "configuration cannot hold: mount it elsewhere");
  if (!can_be_quoted(what.work))
    return refuse(problem, fmt::format("export: --work '{}': has a character that the server's "
                                       "configuration cannot hold: name another",
                                       what.work));
  if (what.name.size() < 2 || what.name.front() != '/' || what.name.back() == '/' ||
      what.name.find("//") != std::string::npos || !can_be_quoted(what.name))
    return refuse(problem,
                  fmt::format("export: --as '{}': write a name like /kvcachefs", what.name));
  if (!is_address(what.address))
    return refuse(problem, fmt::format("export: --listen '{}': write an address like 10.0.0.5, "
                                       "or 0.0.0.0 for all",
                                       what.address));
  for (const std::string& client : what.clients) {
    if (!is_client(client))
      return refuse(problem, fmt::format("export: --client '{}': write an address, a network "
                                         "like 10.0.0.0/24, or a host's name",
                                         client));
  }
  if (!what.v3 && !what.v4) return refuse(problem, "export: --nfs: write 3, 4 or 3,4");
  if (what.port == 0 || what.mount_port == 0 || (what.v3 && what.port == what.mount_port))
    return refuse(problem, "export: --port and --mount-port: two numbers from 1 to 65535");
  return {};
}

std::string_view name_of(Squash squash) {
  switch (squash) {
    case Squash::kNone:
      return "No_Root_Squash";
    case Squash::kAll:
      return "All_Squash";
    case Squash::kRoot:
      break;
  }
  return "Root_Squash";
}

// Handles hold it: the same for a path at each start.
unsigned export_id(std::string_view path) {
  return crc32c(0, std::as_bytes(std::span(path))) % 60000 + 1;
}

}  // namespace

Result<std::string> ganesha_config(const GaneshaExport& what, std::string& problem) {
  TRY(check(what, problem));
  const std::string_view versions = !what.v4 ? "3" : !what.v3 ? "4" : "3, 4";
  const std::string access =
      what.clients.empty()
          ? fmt::format("  Access_Type = RW; Squash = {};\n", name_of(what.squash))
          : fmt::format(
                "  Access_Type = None; Squash = {0};\n"
                "  CLIENT {{ Clients = {1}; Access_Type = RW; Squash = {0}; }}\n",
                name_of(what.squash), fmt::join(what.clients, ", "));
  return fmt::format(
      R"(# NFS-Ganesha serves {path}, a mount of kvcachefs: ganesha.nfsd -F -f THIS-FILE
NFS_CORE_PARAM {{
  Protocols = {versions}; NFS_Port = {port}; MNT_Port = {mount_port}; Bind_addr = {address};
  Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true;
  MaxRPCSendBufferSize = 9437184; MaxRPCRecvBufferSize = 9437184;
}}
NFS_KRB5 {{ Active_krb5 = false; }}
# No grace period at its start: nobody's locks are kept here.
NFSv4 {{
  Graceless = true; Only_Numeric_Owners = true; RecoveryBackend = fs; RecoveryRoot = "{work}/recovery";
}}
# Names come and go without the server: it remembers no directory. It closes what nobody has read for some seconds, so
# that evictions are not held up by files that only the server has open.
MDCACHE {{
  Dir_Chunk = 0; Entries_HWMark = 100000; FD_LWMark_Percent = 0; LRU_Run_Interval = 5;
}}
EXPORT {{
  Export_Id = {id}; Path = "{path}"; Pseudo = "{name}"; Protocols = {versions};
  Transports = TCP; SecType = sys;
{access}  MaxRead = 8388608; PrefRead = 1048576; MaxWrite = 8388608; PrefWrite = 1048576;
  Attr_Expiration_Time = 0;
  # The device's number, which changes with each mount, stays out of the handles.
  FSAL {{ Name = VFS; fsid_type = Major64; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
)",
      fmt::arg("path", what.path), fmt::arg("versions", versions), fmt::arg("port", what.port),
      fmt::arg("mount_port", what.mount_port), fmt::arg("address", what.address),
      fmt::arg("work", what.work), fmt::arg("id", export_id(what.path)),
      fmt::arg("name", what.name), fmt::arg("access", access));
}

std::string linux_mount(const GaneshaExport& what, const std::string& host) {
  const std::string version =
      what.v4 ? fmt::format("vers=4.2,port={}", what.port)
              : fmt::format("vers=3,port={},mountport={},mountproto=tcp,nolock", what.port,
                            what.mount_port);
  return fmt::format("mount -t nfs -o {},proto=tcp,actimeo={},lookupcache=positive {}:{}",
                     version, kAttributeSeconds,
                     host.find(':') == std::string::npos ? host : "[" + host + "]", what.name);
}

}  // namespace kvcachefs

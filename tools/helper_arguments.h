// The words that mount(8) calls its helpers with: SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS]
// [-t TYPE].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

struct HelperArguments {
  std::string source;
  std::string directory;
  std::string options;          // all -o joined
  bool fake = false;            // -f: do all but mount
  bool verbose = false;         // -v
  std::string mount_namespace;  // -N: a pid or a path
};

// `problem` says which word was refused. Errors: EINVAL.
Result<HelperArguments> parse_helper_arguments(const std::vector<std::string>& words,
                                               std::string& problem);

// The `kvcachefs mount` command line for them, without the program. The source is the nvme
// directory, unless it says nothing (`none`, `kvcachefs`, `fuse`) and the options name one.
std::vector<std::string> mount_command(const HelperArguments& arguments);

// `-o remount,…`: what the mount flags (MS_*) become, from those in force and the list.
// nullopt: the list asks for no remount.
struct Remount {
  unsigned long flags = 0;
  bool asks_write = false;  // rw stands in it
};
// Errors: EINVAL (a word that a running mount cannot change; `problem` names it).
Result<std::optional<Remount>> parse_remount(const std::string& options,
                                             const std::string& in_force, std::string& problem);

}  // namespace kvcachefs

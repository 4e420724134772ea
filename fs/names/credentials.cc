#include "fs/names/credentials.h"

#include <sys/stat.h>

#include <sstream>
#include <string>

#include "backend/base/proc_status.h"

namespace kvcachefs {
namespace {

std::string proc_of(const Caller& caller) { return "/proc/" + std::to_string(caller.pid); }

bool shares_user_namespace(const Caller& caller) {
  struct stat theirs {};
  struct stat ours {};
  return ::stat((proc_of(caller) + "/ns/user").c_str(), &theirs) == 0 &&
         ::stat("/proc/self/ns/user", &ours) == 0 && theirs.st_ino == ours.st_ino &&
         theirs.st_dev == ours.st_dev;
}

}  // namespace

bool may_keep(const Caller& caller, const Keepers& keepers) {
  return keepers.may_keep_own(caller.uid, caller.gid) ||
         (keepers.group && in_group(caller, *keepers.group));
}

bool in_group(const Caller& caller, gid_t group) {
  if (caller.gid == group) return true;
  std::istringstream groups(proc_status(caller.pid, "Groups"));
  for (gid_t one = 0; groups >> one;) {
    if (one == group) return true;
  }
  return false;
}

bool is_same_process(const Caller& caller, pid_t thread) {
  if (caller.pid <= 0 || thread <= 0) return false;
  if (caller.pid == thread) return true;
  struct stat status {};
  return ::stat((proc_of(caller) + "/task/" + std::to_string(thread)).c_str(), &status) == 0;
}

bool is_another_process(const Caller& caller, pid_t thread) {
  if (caller.pid == thread || caller.pid <= 0 || thread <= 0) return false;
  struct stat status {};
  // /proc has a directory for each thread, and in it all threads of its process.
  const std::string place = proc_of(caller) + "/task/";
  if (::stat((place + std::to_string(caller.pid)).c_str(), &status) != 0) return false;
  if (::stat((place + std::to_string(thread)).c_str(), &status) == 0) return false;
  return ::stat(("/proc/" + std::to_string(thread)).c_str(), &status) == 0;
}

bool has_capability(const Caller& caller, int capability) {
  std::istringstream line(proc_status(caller.pid, "CapEff"));
  std::uint64_t effective = 0;
  line >> std::hex >> effective;
  return ((effective >> capability) & 1) != 0 && shares_user_namespace(caller);
}

}  // namespace kvcachefs

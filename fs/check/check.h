// The offline check, in passes: each rests on what the ones before it have mended.
//
//   rows      every record reads, and no number is beyond those given            rows.cc
//   names     dentry, listing and back reference agree, and lead to an inode     names.cc
//   tree      every directory hangs in the tree, once                            tree.cc
//   inodes    link counts, data states, backing files, checksums         inodes.cc, data.cc
//   rest      objects, xattrs, unsealed inodes, orphans, stray backing files     rest.cc
//   blocks    blocks and prefixes stand for names, and for all of them         blocks.cc
//
// Every problem is repaired as it is found; without --repair that happens on a store that is
// thrown away, and the devices are left alone.
//
// What a crash leaves for the next start to settle is no problem: orphans, unsealed files whose
// backing file a power cut took, and backing files that were made just before it; after a crash of the machine also names
// of what was evicted, sealed files of another length, and backing files without a record.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/result.h"
#include "backend/tier.h"
#include "metadata/catalog.h"
#include "metadata/store.h"

namespace kvcachefs {

// What is done about a problem: as an offer, and as a fact.
struct Remedy {
  const char* offer;
  const char* done;
};
inline constexpr Remedy kRemove{"--repair removes it", "removed"};
inline constexpr Remedy kMakeAnew{"--repair makes it anew", "made anew"};
inline constexpr Remedy kCorrect{"--repair corrects it", "corrected"};
inline constexpr Remedy kDropNames{"--repair drops its names", "its names were dropped"};
inline constexpr Remedy kQuarantine{
    "--repair drops its names and moves its file to quarantine/",
    "its names were dropped, and its file moved to quarantine/"};
inline constexpr Remedy kReconnect{"--repair moves it to /lost+found", "moved to /lost+found"};
inline constexpr Remedy kSealAnew{"--repair has the next mount seal it anew",
                                  "the next mount seals it anew"};
inline constexpr Remedy kReadAnew{"--repair has the next mount make them anew",
                                  "the next mount makes them anew"};
inline constexpr Remedy kCollect{"--repair has the next mount remove it",
                                 "the next mount removes it"};

struct CheckSummary {
  std::uint64_t problems = 0;
  std::uint64_t left = 0;  // not repaired
  std::uint64_t inodes = 0;
  std::uint64_t objects = 0;
};

struct CheckSetup {
  Store& store;      // the catalog's
  Catalog& catalog;  // over `store`
  // By index in the catalog's table; all are there.
  std::vector<Tier*> devices;
  bool repair = false;
  std::FILE* out = nullptr;
};

class Check {
 public:
  explicit Check(const CheckSetup& setup) : setup_(setup) {}

  // Errors: those of the catalog and the devices; the check did not come to its end then.
  Result<CheckSummary> run();

 private:
  // ---- the passes ----
  Result<void> find_last_end();
  Result<void> check_rows();
  Result<void> check_ids(std::uint64_t largest);
  Result<void> check_root();
  Result<void> check_names();
  Result<void> check_listings();
  Result<void> check_back_references();
  Result<void> check_dentries();
  Result<void> check_dentry(InodeNumber parent, std::string_view name,
                            const DentryRecord& dentry);
  Result<void> check_tree();
  Result<void> check_directory(InodeNumber number, const InodeRecord& record);
  Result<void> check_inodes();
  Result<void> check_inode(InodeNumber number, InodeRecord record);
  Result<void> check_links(InodeNumber number, InodeRecord& record);
  Result<void> check_state(InodeNumber number, InodeRecord& record);
  Result<void> check_data(InodeNumber number, InodeRecord& record);
  Result<void> check_remote(InodeNumber number, InodeRecord& record);
  Result<void> check_previous(InodeNumber number, InodeRecord& record);
  Result<void> check_seal(InodeNumber number, InodeRecord& record, Tier& tier,
                          const ObjectRecord& object);
  Result<void> check_objects();
  Result<void> check_xattrs();
  Result<void> check_unsealed();
  Result<void> check_orphans();
  Result<void> check_devices();
  Result<void> check_blocks();
  Result<void> check_block_names();

  // ---- repairs ----
  Result<std::uint64_t> new_id();
  Result<void> erase(Table table, std::string_view key);
  Result<void> commit(Edit&& edit) { return setup_.catalog.commit(std::move(edit)); }
  Result<void> drop_names(InodeNumber number, InodeRecord& record);
  // Gives an inode that has no name one in /lost+found. `record` is not written.
  Result<void> reconnect(InodeNumber number, const InodeRecord& record);
  Result<InodeNumber> lost_and_found();
  Result<void> forget_seal(InodeNumber number, InodeRecord& record);

  // ---- looks ----
  Result<bool> refers_to(InodeNumber inode, ObjectId object);
  Result<bool> has_row(Table table, std::string_view key);
  // Whether one of the inode's names has this number.
  Result<std::set<std::string>> prefix_keys_left();
  Result<bool> has_name(InodeNumber inode, std::uint64_t block);
  // Whether the database has given the number, to an inode, an object or a place in a listing.
  [[nodiscard]] bool is_given(std::uint64_t number) const noexcept {
    return number != 0 && number < next_id_;
  }
  // The device that holds the object's backing file, if one does.
  std::optional<std::uint32_t> device_with(ObjectId object);

  // ---- the report ----
  void problem(const Remedy& remedy, const std::string& what);
  // A problem that no repair is known for; `advice` says what a person does.
  void unsolved(const std::string& what, std::string_view advice);
  void line(const std::string& text) const;

  // Runs `visit` on all rows of a table; its first error ends the walk.
  Result<void> each_row(
      Table table,
      const std::function<Result<void>(std::string_view key, std::string_view value)>& visit);

  const CheckSetup setup_;
  CheckSummary summary_;
  bool crashed_ = false;                 // the last run did not end in order
  std::optional<ObjectId> closed_from_;  // RunMarker::closed_from of it
  ObjectId cut_before_ =
      0;  // the machine's crash may have left anything of those below: the next start judges it
  bool blocks_behind_ = false;  // names are still to be read for blocks
  bool name_was_dropped_ = false;
  bool directory_waits_ = false;  // for its record, which comes with its own name
  std::uint64_t next_id_ = 0;
  std::optional<InodeNumber> lost_and_found_;
};

// A name as it is shown in the report: bytes that would spoil a terminal are written \xhh.
[[nodiscard]] std::string printable(std::string_view name);

}  // namespace kvcachefs

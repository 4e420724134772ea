// Parent links: what a sighting of a name says about the name before it in its prefix.
//
// A name has a parent and a candidate. The first sighting guesses; a second one that agrees settles
// the link, one that disagrees exchanges the two or guesses anew. Every outcome scores the class of
// evidence that the link came from, so a runtime whose order cannot be trusted (a pool that takes
// one key a thread) soon makes no firm links.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/order/callers.h"
#include "fs/order/name_table.h"

namespace kvcachefs::order {

// A name called just before, and the kind of evidence that it is the parent.
struct Evidence {
  NameIndex name = kNoName;
  EvidenceClass kind = 0;
};

struct Sighting {
  NameIndex name = kNoName;
  Evidence by_thread;
  Evidence by_process;
  CallKind kind = CallKind::kProbe;
  bool first = false;
};

class Links {
 public:
  explicit Links(NameTable& names) : names_(names) {}

  void sight(const Sighting& sighting, Process& process);

  // Replaces the parent, or removes it (kNoName); the confidence is the caller's to set.
  void link(NameIndex name, NameIndex parent) noexcept;
  // Takes the name out of all links: its children have no parent then. Calls `orphaned` for each
  // child before.
  template <typename Orphaned>
  void unlink_all(NameIndex name, Orphaned orphaned) {
    link(name, kNoName);
    while (names_[name].first_child != kNoName) {
      const NameIndex child = names_[name].first_child;
      orphaned(child);
      link(child, kNoName);
      names_[child].confidence = kGuessed;
    }
  }

  // Whether `ancestor` is found within `steps` links above `name`.
  [[nodiscard]] bool is_above(NameIndex ancestor, NameIndex name,
                              std::size_t steps) const noexcept;
  [[nodiscard]] NameIndex candidate(const NameRecord& record) const noexcept;

 private:
  void guess(NameIndex name, const Evidence& best, const Evidence& other,
             const Reliability& reliability) noexcept;
  void confirm(NameIndex name, const Evidence& best, const Evidence& other, Process& process);
  void decide(const Sighting& sighting, const Evidence& best, const Evidence& other,
              Process& process);
  void set_parent(NameIndex name, const Evidence& evidence) noexcept;
  void set_candidate(NameRecord& record, const Evidence& evidence) noexcept;
  void exchange(NameIndex name) noexcept;
  [[nodiscard]] bool makes_circle(NameIndex name, NameIndex parent) const noexcept;
  [[nodiscard]] bool near_on_chain(NameIndex a, NameIndex b) const noexcept;
  [[nodiscard]] bool recent(NameIndex name, CallKind kind,
                            const Process& process) const noexcept;

  NameTable& names_;
};

}  // namespace kvcachefs::order

// Lookups that end above what they ask for: while the directory of a block is missing, a lookup
// of the block gets no further than that name.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvcachefs {

// The lookups that had ended at a name when something was made under it.
struct alignas(4) Unfound {
  // A burst: lookups of a thread that looked up nothing else in between. This many came before the last one.
  std::uint8_t by_others = 0;
  std::uint8_t burst = 0;  // lookups of the last one, of the thread that makes it
  // How many directories have been made one in the other since, beginning with this one.
  std::uint8_t levels = 1;
  bool was_asked_before = false;  // there were lookups that have been counted

  // `made`: of a directory that was made in this one, before any file. Looked up once, it belongs to the call that
  // made this one; otherwise it is the first of another call.
  [[nodiscard]] Unfound with(const Unfound& made) const noexcept {
    const bool goes_on = made.burst <= 1;
    return {.by_others = sum(goes_on ? by_others : in_directory(), made.by_others),
            .burst = goes_on ? burst : made.burst,
            .levels = goes_on ? sum(levels, made.levels) : made.levels,
            .was_asked_before = was_asked_before || made.was_asked_before};
  }
  // What was asked for, when a file is made below so many directories. The burst is of the call that made
  // them and of what the same store did before: Python's os.makedirs() looks at the first one once for each of
  // them but the last, and the kernel once more; C++'s create_directories() and Go's MkdirAll() look once
  // more than Python; vLLM looks for the block again before it stores. A thread that probes and
  // stores at once looks like those: it is believed to have probed if nobody else had.
  [[nodiscard]] unsigned in_directory() const noexcept {
    const bool others_asked = by_others != 0 || was_asked_before;
    return by_others + (!others_asked && burst > levels ? 1u : 0u);
  }
  // Of one file: without the lookup that the kernel made for the call.
  [[nodiscard]] unsigned of_file() const noexcept { return by_others + (burst > 1 ? 1u : 0u); }
  [[nodiscard]] bool is_any() const noexcept {
    return by_others != 0 || burst != 0 || was_asked_before;
  }

  [[nodiscard]] static std::uint8_t sum(unsigned one, unsigned other) noexcept {
    return static_cast<std::uint8_t>(std::min(one + other, 255u));
  }
};

}  // namespace kvcachefs

// Random bytes from the kernel, and UUIDs made of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvcachefs {

using Uuid = std::array<std::uint8_t, 16>;

// Waits for the kernel's generator to be ready (only early in boot).
void random_bytes(std::span<std::byte> out) noexcept;

// Version 4 (random).
[[nodiscard]] Uuid random_uuid() noexcept;
// 8-4-4-4-12 lower-case hex digits.
[[nodiscard]] std::string format_uuid(const Uuid& uuid);
// nullopt: not that form. Upper-case digits are taken too.
[[nodiscard]] std::optional<Uuid> parse_uuid(std::string_view text) noexcept;

}  // namespace kvcachefs

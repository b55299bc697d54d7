// The services by number, and the tokens that route completions to them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace offpath::service {

// The top byte of a token is its service, which routes completions.
enum class ServiceId : std::uint8_t {
  channel = 0,  // requests that the channel itself serves: it has no tokens
  mover = 1,
  pool = 2,
  group = 3,
  peers = 4,
  query = 5,
  asked = 6,
  sift = 7,
  compute = 8,
  disk = 9,
  gauges = 11,
  resources = 12,
  exchange = 16,
  task = 17,
  message = 18,
  tcp = 19
};
inline constexpr std::size_t services_max = 20;
[[nodiscard]] constexpr std::uint64_t token_of(ServiceId service, std::uint64_t number) noexcept {
  return (static_cast<std::uint64_t>(service) << 56) | number;
}
// Marks a job that reads or writes files, which may hang: it runs on a thread of the pool for programs' files.
inline constexpr std::uint64_t file_bit = 1ull << 55;
[[nodiscard]] constexpr std::uint64_t file_token_of(ServiceId service, std::uint64_t number) noexcept {
  return token_of(service, number) | file_bit;
}
[[nodiscard]] constexpr bool is_file_job(std::uint64_t token) noexcept { return (token & file_bit) != 0; }
[[nodiscard]] constexpr std::uint64_t number_of(std::uint64_t token) noexcept {
  return token & ~(0xFFull << 56) & ~file_bit;
}
[[nodiscard]] constexpr ServiceId service_of(std::uint64_t token) noexcept {
  return static_cast<ServiceId>(token >> 56);
}

}  // namespace offpath::service

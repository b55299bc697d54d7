// The longest names and texts in messages.
#pragma once

#include <cstddef>

namespace offpath::wire {

inline constexpr std::size_t key_bytes_max = 64 << 10;
// three times a key: long enough for a pattern that matches only one key, with a set for each character
inline constexpr std::size_t pattern_bytes_max = 3 * key_bytes_max;
inline constexpr std::size_t enclosed_bytes_max = 1024;  // an object of at most this size is enclosed in its answer
inline constexpr std::size_t name_bytes_max = 255;
inline constexpr std::size_t pool_bytes_max = 1024;           // of a pool's name with its options
inline constexpr std::size_t arguments_bytes_max = 32 << 10;  // of a function, in the request itself

}  // namespace offpath::wire

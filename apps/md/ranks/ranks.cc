#include "md/ranks/ranks.h"

#include <algorithm>
#include <cstdlib>

namespace md {

void OneRank::exchange(int /*to*/, std::span<const std::byte> out, int /*from*/, std::span<std::byte> in) {
  std::copy_n(out.begin(), std::min(out.size(), in.size()), in.begin());
}

std::vector<std::byte> OneRank::exchange_any(int /*to*/, std::span<const std::byte> out, int /*from*/) {
  return {out.begin(), out.end()};
}

void OneRank::sum(std::span<double> /*numbers*/) {}
void OneRank::maximum(std::span<double> /*numbers*/) {}

std::vector<std::vector<std::byte>> OneRank::gather(std::span<const std::byte> bytes) {
  return {std::vector<std::byte>(bytes.begin(), bytes.end())};
}

void OneRank::begin_maximum(std::span<const double> numbers) {
  std::copy_n(numbers.begin(), numbers.size(), begun_.begin());
}
void OneRank::finish_maximum(std::span<double> numbers) {
  std::copy_n(begun_.begin(), numbers.size(), numbers.begin());
}

std::vector<std::byte> OneRank::scatter(const std::vector<std::vector<std::byte>>& parts) { return parts.at(0); }

void OneRank::broadcast(std::vector<std::byte>& /*bytes*/) {}

void OneRank::give_up() { std::exit(1); }

}  // namespace md

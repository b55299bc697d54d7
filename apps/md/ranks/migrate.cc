#include "md/ranks/migrate.h"

#include <cmath>
#include <string>
#include <vector>

#include "md/files/bad_input.h"

namespace md {
namespace {

struct Traveller {
  std::array<double, values> x, v, f;
  std::int32_t id;
  std::uint8_t type;
};

Traveller pack(const Atoms& atoms, std::size_t i) {
  Traveller one{};
  for (std::size_t d = 0; d < values; ++d) {
    one.x[d] = atoms.x[values * i + d];
    one.v[d] = atoms.v[values * i + d];
    one.f[d] = atoms.f[values * i + d];
  }
  one.id = atoms.id[i];
  one.type = atoms.type[i];
  return one;
}

void place(Atoms& atoms, std::size_t i, const Traveller& one) {
  for (std::size_t d = 0; d < values; ++d) {
    atoms.x[values * i + d] = one.x[d];
    atoms.v[values * i + d] = one.v[d];
    atoms.f[values * i + d] = one.f[d];
  }
  atoms.id[i] = one.id;
  atoms.type[i] = one.type;
}

void wrap(const Box& whole, std::size_t d, Atoms& atoms) {
  const double low = whole.low[d], high = whole.high[d], length = high - low;
  for (std::size_t i = 0; i < atoms.own; ++i) {
    double& x = atoms.x[values * i + d];
    if (x < low) x += length;
    if (x >= high) x -= length;
    if (x < low && x > low - 1e-9 * length) x = low;  // high - length may be rounded to less than low
  }
}

void take(std::span<const std::byte> bytes, const Box& own, std::size_t d, Atoms& atoms) {
  for (std::size_t at = 0; at + sizeof(Traveller) <= bytes.size(); at += sizeof(Traveller)) {
    Traveller one;
    std::memcpy(&one, bytes.data() + at, sizeof one);
    if (one.x[d] < own.low[d] || one.x[d] >= own.high[d]) continue;
    atoms.resize(atoms.own + 1);
    place(atoms, atoms.own - 1, one);
  }
}

void hand_over(const Domain& domain, std::size_t d, RankMessages& messages, Atoms& atoms) {
  std::vector<Traveller> leaving;
  for (std::size_t i = 0; i < atoms.own;) {
    const double x = atoms.x[values * i + d];
    if (x >= domain.own.low[d] && x < domain.own.high[d]) {
      ++i;
      continue;
    }
    leaving.push_back(pack(atoms, i));
    if (i + 1 < atoms.own) place(atoms, i, pack(atoms, atoms.own - 1));
    atoms.resize(atoms.own - 1);
  }
  const int axis = static_cast<int>(d);
  const int left = domain.neighbour(axis, -1), right = domain.neighbour(axis, +1);
  const auto bytes = std::as_bytes(std::span(leaving));
  if (domain.safe_exchange) {  // once around the ring
    std::vector<std::byte> passing(bytes.begin(), bytes.end());
    for (int turn = 1; turn < domain.grid[d]; ++turn) {
      passing = messages.exchange_any(right, passing, left);
      take(passing, domain.own, d, atoms);
    }
    return;
  }
  const std::vector<std::byte> from_right = messages.exchange_any(left, bytes, right);
  take(from_right, domain.own, d, atoms);
  if (left == right) return;
  const std::vector<std::byte> from_left = messages.exchange_any(right, bytes, left);
  take(from_left, domain.own, d, atoms);
}

void check_places(const Domain& domain, const Atoms& atoms) {
  for (std::size_t i = 0; i < atoms.own; ++i) {
    for (std::size_t d = 0; d < 3; ++d) {
      const double x = atoms.x[values * i + d];
      if (x >= domain.own.low[d] && x < domain.own.high[d]) continue;
      const std::string who = "atom " + std::to_string(atoms.id[i]);
      if (!std::isfinite(x)) {
        throw BrokenRun(who + " has a position that is not a number: the time step is too large, or atoms overlap");
      }
      throw BrokenRun(who + " left the box by more than its length between two exchanges: the time step is too large");
    }
  }
}

}  // namespace

void move_to_owners(const Domain& domain, RankMessages& messages, Atoms& atoms) {
  atoms.resize_ghosts(0);
  for (std::size_t d = 0; d < 3; ++d) {
    wrap(domain.whole, d, atoms);
    if (domain.grid[d] > 1) hand_over(domain, d, messages, atoms);
  }
}

void migrate(const Domain& domain, Ranks& ranks, Atoms& atoms) {
  const std::size_t before = atoms.own;
  move_to_owners(domain, ranks, atoms);
  check_places(domain, atoms);
  double change = static_cast<double>(atoms.own) - static_cast<double>(before);
  ranks.sum({&change, 1});
  if (change != 0) {
    throw BrokenRun(std::to_string(static_cast<long long>(-change)) +
                    " atoms went further than the neighbouring rank's part of the box " +
                    "between two exchanges, or their positions are not numbers: the time step is too large" +
                    (domain.safe_exchange ? "" : ", or use --safe_exchange, which finds them"));
  }
}

}  // namespace md

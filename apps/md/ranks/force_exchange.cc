#include "md/ranks/force_exchange.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <tuple>

#include "md/ranks/migrate.h"

namespace md {
namespace {

void copy_force(const double* from, double* to) { std::copy_n(from, values, to); }

Place noted(const double* f) { return {static_cast<std::int32_t>(f[1]), static_cast<std::int32_t>(f[0])}; }

bool is_inside(const Box& box, const double* x) {
  bool inside = true;
  for (std::size_t d = 0; d < 3; ++d) inside = inside && x[d] >= box.low[d] && x[d] < box.high[d];
  return inside;
}

[[noreturn]] void refuse() { throw std::logic_error("forces took a different way than their atoms"); }

}  // namespace

void note_places(int rank, Atoms& atoms) {
  for (std::size_t i = 0; i < atoms.own; ++i) {
    atoms.f[values * i] = static_cast<double>(i);
    atoms.f[values * i + 1] = rank;
  }
}

void read_places(const Atoms& atoms, Array<Place>& places) {
  places.resize(atoms.own);
  for (std::size_t i = 0; i < atoms.own; ++i) places[i] = noted(atoms.f.data() + values * i);
}

void ForceExchange::send_after(const double* f, const double* x, std::size_t own, const Domain& domain,
                               RankMessages& messages) {
  sent_.resize(0);
  if (messages.count() == 1) return;
  const std::array<double, 3> from{static_cast<double>(messages.rank()), 0, 0};
  for (std::size_t i = 0; i < own; ++i) {
    if (is_inside(domain.own, x + values * i)) continue;
    sent_.add(static_cast<std::int32_t>(i), 0, x + values * i, from.data());
    copy_force(f + values * i, sent_.f.data() + values * (sent_.own - 1));
  }
  move_to_owners(domain, messages, sent_);
}

template <class PlaceOf>
void ForceExchange::put_in_order(const double* f, std::size_t own, int rank, std::size_t count, const PlaceOf& place_of,
                                 double* to) {
  arrived_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const Place place = place_of(i);
    if (place.rank != rank) {
      arrived_.push_back({place, i});
    } else if (place.index < 0 || static_cast<std::size_t>(place.index) >= own) {
      refuse();
    } else {
      copy_force(f + values * static_cast<std::size_t>(place.index), to + values * i);
    }
  }
  const auto earlier = [](const Arrived& a, const Arrived& b) {
    return std::tie(a.place.rank, a.place.index) < std::tie(b.place.rank, b.place.index);
  };
  std::sort(arrived_.begin(), arrived_.end(), earlier);
  std::size_t found = 0;
  for (std::size_t k = 0; k < sent_.own; ++k) {
    const Arrived wanted{{static_cast<std::int32_t>(sent_.v[values * k]), sent_.id[k]}, 0};
    if (wanted.place.rank == rank) continue;  // it left the box and came back at the other side
    const auto atom = std::lower_bound(arrived_.begin(), arrived_.end(), wanted, earlier);
    if (atom == arrived_.end() || earlier(wanted, *atom)) refuse();
    copy_force(sent_.f.data() + values * k, to + values * atom->now);
    ++found;
  }
  if (found != arrived_.size()) refuse();
}

void ForceExchange::put_in_order(const double* f, std::size_t own, int rank, std::span<const Place> places,
                                 double* to) {
  put_in_order(f, own, rank, places.size(), [&](std::size_t i) { return places[i]; }, to);
}

void ForceExchange::put_in_order(const double* f, std::size_t own, int rank, Atoms& atoms) {
  double* const to = atoms.f.data();
  put_in_order(f, own, rank, atoms.own, [&](std::size_t i) { return noted(to + values * i); }, to);
}

}  // namespace md

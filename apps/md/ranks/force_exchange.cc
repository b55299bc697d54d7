#include "md/ranks/force_exchange.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <tuple>

#include "md/ranks/migrate.h"

namespace md {
namespace {

void copy_force(const double* from, double* to) { std::copy_n(from, values, to); }

}  // namespace

void ForceExchange::note_places(const Ranks& ranks, Atoms& atoms) {
  for (std::size_t i = 0; i < atoms.own; ++i) {
    atoms.f[values * i] = static_cast<double>(i);
    atoms.f[values * i + 1] = ranks.rank();
  }
}

void ForceExchange::bring_home(const double* f, const double* x, std::size_t own, const Domain& domain, Ranks& ranks,
                               Atoms& atoms) {
  arrived_.clear();
  stayed_.resize(own);
  std::fill(stayed_.begin(), stayed_.end(), 0);
  for (std::size_t i = 0; i < atoms.own; ++i) {
    double* const note = atoms.f.data() + values * i;
    const auto place = static_cast<std::size_t>(note[0]);
    if (static_cast<int>(note[1]) != ranks.rank()) {
      arrived_.push_back({static_cast<int>(note[1]), static_cast<std::int32_t>(place), i});
      continue;
    }
    stayed_[place] = 1;
    copy_force(f + values * place, note);
  }
  if (ranks.count() == 1) return;

  leaving_.resize(0);
  const std::array<double, 3> from{static_cast<double>(ranks.rank()), 0, 0};
  for (std::size_t place = 0; place < own; ++place) {
    if (stayed_[place] != 0) continue;
    leaving_.add(static_cast<std::int32_t>(place), 0, x + values * place, from.data());
    copy_force(f + values * place, leaving_.f.data() + values * (leaving_.own - 1));
  }
  migrate(domain, ranks, leaving_);  // atoms that have arrived here
  const auto earlier = [](const Arrived& a, const Arrived& b) {
    return std::tie(a.rank, a.place) < std::tie(b.rank, b.place);
  };
  std::sort(arrived_.begin(), arrived_.end(), earlier);
  if (leaving_.own != arrived_.size()) throw std::logic_error("forces took a different way than their atoms");
  for (std::size_t k = 0; k < leaving_.own; ++k) {
    const Arrived wanted{static_cast<int>(leaving_.v[values * k]), leaving_.id[k], 0};
    const auto found = std::lower_bound(arrived_.begin(), arrived_.end(), wanted, earlier);
    if (found == arrived_.end() || earlier(wanted, *found))
      throw std::logic_error("forces took a different way than their atoms");
    copy_force(leaving_.f.data() + values * k, atoms.f.data() + values * found->now);
  }
}

}  // namespace md

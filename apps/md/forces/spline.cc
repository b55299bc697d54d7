#include "md/forces/spline.h"

#include "md/files/bad_input.h"

namespace md {
namespace {

constexpr double cubics_max = 1e7;

}  // namespace

Spline::Spline(std::span<const double> points, double spacing) : per_spacing_(1 / spacing) {
  const std::size_t n = points.size();
  std::vector<double> slope(n);  // per interval
  slope[0] = points[1] - points[0];
  slope[1] = 0.5 * (points[2] - points[0]);
  slope[n - 2] = 0.5 * (points[n - 1] - points[n - 3]);
  slope[n - 1] = points[n - 1] - points[n - 2];
  for (std::size_t k = 2; k + 2 < n; ++k) {
    slope[k] = ((points[k - 2] - points[k + 2]) + 8 * (points[k + 1] - points[k - 1])) / 12;
  }
  cubics_.resize(n - 1);
  for (std::size_t k = 0; k + 1 < n; ++k) {
    const double rise = points[k + 1] - points[k];
    cubics_[k] = {points[k], slope[k], 3 * rise - 2 * slope[k] - slope[k + 1], slope[k] + slope[k + 1] - 2 * rise};
  }
}

void Spline::append_points(std::vector<double>& into) const {
  into.push_back(per_spacing_);
  for (const Cubic& cubic : cubics_) into.push_back(cubic.c0);
  if (cubics_.empty()) return;
  const Cubic& end = cubics_.back();
  into.push_back(end.c0 + end.c1 + end.c2 + end.c3);
}

void Spline::append_cubics(std::vector<double>& into) const {
  into.push_back(static_cast<double>(cubics_.size()));
  into.push_back(per_spacing_);
  for (const Cubic& cubic : cubics_) into.insert(into.end(), {cubic.c0, cubic.c1, cubic.c2, cubic.c3});
}

Spline Spline::from_cubics(std::span<const double>& from) {
  constexpr std::size_t head = 2;
  const double count = from.size() > head ? from[0] : 0;
  if (!(count >= 1 && count <= cubics_max) || (from.size() - head) / 4 < static_cast<std::size_t>(count))
    throw BadInput("a table cut short");
  if (!(from[1] > 0) || !std::isfinite(from[1])) throw BadInput("a table without a spacing");
  Spline spline;
  spline.per_spacing_ = from[1];
  from = from.subspan(head);
  for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k, from = from.subspan(4))
    spline.cubics_.push_back({from[0], from[1], from[2], from[3]});
  return spline;
}

}  // namespace md

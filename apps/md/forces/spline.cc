#include "md/forces/spline.h"

namespace md {

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

}  // namespace md

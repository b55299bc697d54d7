#include "md/forces/spline.h"

namespace md {

Spline::Spline(std::span<const double> values, double spacing) : per_spacing_(1 / spacing) {
  const std::size_t n = values.size();
  std::vector<double> slope(n);  // per interval
  slope[0] = values[1] - values[0];
  slope[1] = 0.5 * (values[2] - values[0]);
  slope[n - 2] = 0.5 * (values[n - 1] - values[n - 3]);
  slope[n - 1] = values[n - 1] - values[n - 2];
  for (std::size_t k = 2; k + 2 < n; ++k) {
    slope[k] = ((values[k - 2] - values[k + 2]) + 8 * (values[k + 1] - values[k - 1])) / 12;
  }
  cubics_.resize(n - 1);
  for (std::size_t k = 0; k + 1 < n; ++k) {
    const double rise = values[k + 1] - values[k];
    cubics_[k] = {values[k], slope[k], 3 * rise - 2 * slope[k] - slope[k + 1], slope[k] + slope[k + 1] - 2 * rise};
  }
}

}  // namespace md

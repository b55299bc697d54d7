// A function tabulated at equal distances, as cubics between the points: given values, and slopes from five points
// (three and two at the ends), the interpolation for which EAM tables are made.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "md/kernels/kernels.h"

namespace md {

class Spline {
 public:
  struct Value {
    double value, slope;
  };

  Spline() = default;
  // points[k] at k * spacing; at least four points.
  Spline(std::span<const double> points, double spacing);

  // Beyond the last point: continues the last cubic.
  [[nodiscard]] Value at(double x) const {
    const double scaled = x * per_spacing_;
    std::size_t k = scaled > 0 ? static_cast<std::size_t>(scaled) : 0;
    k = k < cubics_.size() ? k : cubics_.size() - 1;
    double p = scaled - static_cast<double>(k);
    p = p < 1 ? p : 1;
    const Cubic& c = cubics_[k];
    return {((c.c3 * p + c.c2) * p + c.c1) * p + c.c0, ((3 * c.c3 * p + 2 * c.c2) * p + c.c1) * per_spacing_};
  }
  // The points and their spacing, after `into`.
  void append_points(std::vector<double>& into) const;
  // The cubics themselves, after `into`; and back, from the front of `from`, which is shortened by them. Throws
  // BadInput if they are not there.
  void append_cubics(std::vector<double>& into) const;
  static Spline from_cubics(std::span<const double>& from);
  [[nodiscard]] double last() const { return static_cast<double>(cubics_.size()) / per_spacing_; }
  // For the kernels; valid as long as this.
  [[nodiscard]] EamTable table() const {
    return {&cubics_[0].c0, per_spacing_, static_cast<std::int32_t>(cubics_.size() - 1)};
  }

 private:
  struct alignas(32) Cubic {
    double c0, c1, c2, c3;
  };
  std::vector<Cubic> cubics_;
  double per_spacing_ = 1;
};

}  // namespace md

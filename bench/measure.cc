#include "measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace offpath::bench {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  OFP_ASSERT(!values.empty());
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

// P(X <= k) for X ~ Binomial(n, 1/2).
double binomial_half_cdf(std::size_t n, std::size_t k) {
  double sum = 0;
  for (std::size_t i = 0; i <= k; ++i) {
    sum += std::exp(std::lgamma(double(n) + 1) - std::lgamma(double(i) + 1) - std::lgamma(double(n - i) + 1) -
                    double(n) * std::log(2.0));
  }
  return sum;
}

}  // namespace

double quantile(std::span<const double> values, double fraction) {
  OFP_ASSERT(fraction >= 0 && fraction <= 1);
  const auto order = sorted(values);
  const double position = fraction * double(order.size() - 1);
  const auto below = std::size_t(position);
  const auto above = std::min(below + 1, order.size() - 1);
  return order[below] + (position - double(below)) * (order[above] - order[below]);
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

double mean(std::span<const double> values) {
  OFP_ASSERT(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double centre = mean(values);
  double squares = 0;
  for (double value : values) squares += (value - centre) * (value - centre);
  return std::sqrt(squares / double(values.size() - 1));
}

Interval median_interval_95(std::span<const double> values) {
  const auto order = sorted(values);
  const std::size_t n = order.size();
  // The largest rank r with P(X < r) <= 2.5 %: the median lies in [x_r, x_(n+1-r)].
  std::size_t rank = 0;
  while (rank + 1 <= n / 2 && binomial_half_cdf(n, rank) <= 0.025) ++rank;
  if (rank == 0) return {order.front(), order.back()};
  return {order[rank - 1], order[n - rank]};
}

Comparison compare(std::span<const double> subject, std::span<const double> peer) {
  OFP_ASSERT(subject.size() == peer.size() && !subject.empty());
  std::vector<double> ratios;
  ratios.reserve(subject.size());
  for (std::size_t i = 0; i < subject.size(); ++i) {
    OFP_ASSERT(subject[i] > 0);
    ratios.push_back(peer[i] / subject[i]);
  }
  return {median(subject), median(peer), median(ratios), median_interval_95(ratios), ratios.size()};
}

double either_way(double ratio) {
  return ratio > 0 ? std::max(ratio, 1 / ratio) : std::numeric_limits<double>::infinity();
}

constexpr std::size_t pairs_in_a_row = 3;

Result<Comparison> run_pairs(const PairPlan& plan, const Turn& subject, const Turn& peer) {
  for (std::size_t i = 0; i < plan.warmups; ++i) {
    OFP_TRY(subject());
    OFP_TRY(peer());
  }
  std::vector<double> subject_costs, peer_costs;
  for (std::size_t i = 0; i < plan.pairs; ++i) {
    const bool subject_first = i / pairs_in_a_row % 2 == 0;
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_subject = (turn == 0) == subject_first;
      OFP_ASSIGN(const double cost, is_subject ? subject() : peer());
      if (!(cost > 0)) {
        return fail(Error::invalid, "pair {}: the {} reported a cost of {}, more than 0 is expected", i,
                    is_subject ? "subject" : "peer", cost);
      }
      (is_subject ? subject_costs : peer_costs).push_back(cost);
    }
  }
  return compare(subject_costs, peer_costs);
}

Result<std::vector<double>> run_turns(std::size_t turns, std::size_t warmups, const Turn& turn) {
  for (std::size_t i = 0; i < warmups; ++i) OFP_TRY(turn());
  std::vector<double> costs;
  costs.reserve(turns);
  for (std::size_t i = 0; i < turns; ++i) {
    OFP_ASSIGN(const double cost, turn());
    costs.push_back(cost);
  }
  return costs;
}

}  // namespace offpath::bench

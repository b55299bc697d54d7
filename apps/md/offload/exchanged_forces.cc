#include "md/offload/exchanged_forces.h"

#include <algorithm>
#include <cstring>

#include "md/files/bad_input.h"

namespace md {

PairSums ExchangedForces::compute(const ExchangeArguments& arguments, std::span<const PairList> blocks, HaloSwaps& halo,
                                  const double* x, std::span<const double> tables, RankMessages& messages) {
  const std::size_t own = arguments.forces.own;
  step_ = 0;
  x_.resize(values * arguments.forces.all);
  f_.resize(values * own);
  if (own > 0) std::memcpy(x_.data(), x, values * own * sizeof(double));
  halo.update_positions(messages, x_.data());
  PairSums sums;
  if (arguments.eam != 0) {
    if (!eam_) eam_ = std::make_unique<EamForces>(tables, choose_kernels("auto"));
    const int threads = static_cast<int>(std::min<std::size_t>(arguments.forces.threads, blocks.size()));
    sums = eam_->compute(blocks, threads, {own, arguments.forces.all, x_.data(), nullptr, f_.data()},
                         [&](double* number) { halo.update_values(messages, number); });
  } else {
    sums = computing_.compute(arguments.forces, blocks, x_.data(), f_.data());
  }
  Domain domain = make_domain(arguments.box, messages.count(), messages.rank());
  domain.safe_exchange = arguments.safe_exchange != 0;
  exchange_.send_after(f_.data(), x_.data(), own, domain, messages);
  rank_ = messages.rank();
  step_ = arguments.step;
  return sums;
}

void ExchangedForces::put_in_order(const OrderArguments& arguments, std::span<const Place> places, double* f) {
  if (arguments.step == 0 || arguments.step != step_)
    throw BadInput("the forces of this step are not here: this worker did not compute them");
  exchange_.put_in_order(f_.data(), f_.size() / values, rank_, places, f);
}

}  // namespace md

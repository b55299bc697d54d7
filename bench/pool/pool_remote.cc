// Objects of 64 bytes that a program gets from another member of its agent's group, in turns with gets from its own
// agent: the latter cost the way between program and agent and back, and the difference is the way between the agents.
//
//   pool.remote_get_us_p50            the get of an object that lies on the other member, as the program sees it
//   pool.remote_get_between_us_p50    that less the get of one that lies on its own agent
//
//   --agent ADDRESS        the program's agent
//   --own POOL --other POOL   pools that lie on it, and on the other member
//
// Peer: two processes that pass 64 bytes on by sockets, on the cores of the two agents; all of them sleep while they
// wait.

#include <memory>

#include "echo.h"
#include "host_program.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::uint64_t object_bytes = 64;

Result<std::unique_ptr<ofp_frame, void (*)(ofp_frame*)>> get(const Channel& channel, const std::string& pool) {
  ofp_error error{};
  ofp_frame* frame = nullptr;
  if (ofp_pool_get(channel.get(), pool.c_str(), "step0", "rank0", second_ns, &frame, &error) != OFP_OK)
    return tl::unexpected(failure_of(error));
  return std::unique_ptr<ofp_frame, void (*)(ofp_frame*)>(frame, ofp_frame_release);
}

Result<double> timed_get(const Channel& channel, const std::string& pool) {
  const std::uint64_t began = ticks();
  OFP_ASSIGN(const auto frame, get(channel, pool));
  const double ns = double(ticks() - began) * ns_per_tick();
  if (ofp_frame_bytes(frame.get()) != object_bytes)
    return fail(Error::io, "the object has {} bytes", ofp_frame_bytes(frame.get()));
  return ns;
}

Status run(const Options& options, Report& report) {
  OFP_TRY(pin_to_core(options.host_core));
  OFP_ASSIGN(const Channel channel, Channel::connect(options.agent));
  const std::string own(options.other("--own")), other(options.other("--other"));
  const std::size_t gets = options.quick ? 20 : 400;
  // A turn is the median of this many gets, one after the other.
  const auto turn = [gets](const auto& once) -> Result<double> {
    std::vector<double> ns;
    for (std::size_t i = 0; i < gets; ++i) {
      OFP_ASSIGN(const double spent, once());
      ns.push_back(spent);
    }
    return median(ns);
  };
  std::vector<double> own_ns, other_ns;
  for (const Echo::Wait wait : {Echo::Wait::asleep, Echo::Wait::spinning}) {
    OFP_ASSIGN(const std::unique_ptr<Echo> echo, Echo::start(options.agent_core, options.host_core, wait));
    const auto get = [&]() -> Result<double> {
      OFP_ASSIGN(const double near_ns, turn([&] { return timed_get(channel, own); }));
      own_ns.push_back(near_ns);
      OFP_ASSIGN(const double far_ns, turn([&] { return timed_get(channel, other); }));
      other_ns.push_back(far_ns);
      return far_ns;
    };
    const auto ask = [&]() -> Result<double> {
      sleep_ns(agent_settles_ns);
      return turn([&] { return echo->ask(); });
    };
    OFP_ASSIGN(const Comparison compared, run_pairs(options.pairs(), get, ask));
    const bool asleep = wait == Echo::Wait::asleep;
    report.add(Claim{.claim = asleep ? "pool.remote_get_us_p50 (64 B)" : "pool.remote_get_us_p50 (64 B, peer spins)",
                     .value = compared.subject / 1e3,
                     .unit = "us",
                     .peer = "64 B through two processes by sockets",
                     .peer_value = compared.peer / 1e3,
                     .ratio = compared.ratio,
                     .interval = compared.interval,
                     .pairs = compared.pairs,
                     .target = asleep ? std::optional(value_at_most(8, "us")) : std::nullopt,
                     .peer_waits = echo->waits()});
  }
  const double own_us = median(own_ns) / 1e3;
  report.add(Claim{.claim = "pool.local_get_us_p50 (64 B)", .value = own_us, .unit = "us"});
  report.add(Claim{.claim = "pool.remote_get_between_us_p50 (64 B, the remote get less the local one)",
                   .value = median(other_ns) / 1e3 - own_us,
                   .unit = "us"});
  return {};
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "pool", {"--own", "--other"}, offpath::bench::run);
}
